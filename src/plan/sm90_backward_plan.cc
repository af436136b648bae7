#include "plan/sm90_backward_plan.h"

#include <fmt/format.h>

#include "plan/gpu_plan.h"
#include "plan/sm90_backward_tuning.h"
#include "plan/subgroups.h"

namespace fa4::internal {
namespace {

// Last keys first: a CTA begins at its diagonal, two steps of 64 queries behind the CTA before it
// or one of 128, and a turn takes no longer where a step has 64; at 128 it takes as long as the
// step. More heads than the L2 cache holds cost 6 to 14 %; few do, and nobody waits
// (docs/kernels/bwd_sm90_sections.md, "Turns given at once"; a turn without a mask, and pairs:
// bwd_sm90_order.md).
TurnRow turns_of(const sm90::BwdTraits& t) {
  return {.l2_share = 0.27,
          .l2_share_of_short_heads = 0.08,
          .columns = 128,
          .columns_last_first = 0,
          .pair_works = t.q_rows > kQueryRows ? 3 : 1};
}

}  // namespace

KernelSource Sm90BackwardSpec::source() const {
  const auto [element, head_dim, head_dim_v, q_rows, k_stages, stages, dout_stages, dv_stages,
              ds_stages, dq_stages, finish_stages, split, softcap] = traits;
  return {.main_file = "sm90/backward/kernel.cuh",
          .name_expression = fmt::format(
              "fa4::bwd_sm90<fa4::sm90::BwdTraits{{.element={}, .head_dim={}, "
              ".head_dim_v={}, .q_rows={}, .k_stages={}, .stages={}, "
              ".dout_stages={}, .dv_stages={}, .ds_stages={}, .dq_stages={}, .finish_stages={}, "
              ".split={}, .softcap={}}}>",
              enumerator(element), head_dim, head_dim_v, q_rows, k_stages, stages, dout_stages,
              dv_stages, ds_stages, dq_stages, finish_stages, split, softcap),
          .display_name = fmt::format("bwd_sm90_{}_d{}{}", name_of(element),
                                      head_dims(head_dim, head_dim_v), softcap ? "_softcap" : "")};
}

BackwardShape Sm90BackwardSpec::shape() const {
  return {.source = source(),
          .keys = sm90::bwd::kKeys,
          .q_rows = traits.q_rows,
          .k_rows = sm90::bwd::kKeys,
          .qk_slab = slab_columns(traits.head_dim),
          .v_slab = slab_columns(traits.head_dim_v),
          .head_dim = traits.head_dim,
          .head_dim_v = traits.head_dim_v,
          .dq_layout = DqLayout::kFragments,
          .statistics = sm90::bwd::multiplies_lse(traits) ? StatisticForm::kParts
                                                          : StatisticForm::kPartOfDelta,
          .threads = sm90::bwd::kNumThreads,
          .smem_bytes = sm90::bwd::smem_layout(traits).total,
          .works_per_block = sm90::bwd::works_per_block(traits),
          .persistent_ctas = num_sms,
          .first_stores = true,
          .finishes = traits.finish_stages > 0,
          .subgroups = subgroups};
}

Support query_sm90_backward_support(const AttentionProblem& p) {
  return query_gpu_backward_support(p, sm90::bwd::kKeys);
}

Sm90BackwardSpec plan_sm90_backward(const AttentionProblem& p, const DeviceSpec& whole_device) {
  const DeviceSpec device = without_margin(whole_device, p);
  const Sm90BackwardRow* row = find_sm90_backward(p.head_dim, p.head_dim_v, p.softcap > 0);
  Sm90BackwardSpec spec{traits_of(*row, element_of(p), p.softcap > 0)};
  spec.subgroups = choose_subgroups(p, device, spec.shape());
  spec.order = choose_backward_order(p, device, spec.shape(), turns_of(spec.traits));
  spec.num_sms = device.num_sms;
  return spec;
}

std::vector<PrebuiltKernel> sm90_backward_kernels() {
  std::vector<PrebuiltKernel> kernels;
  for (const Element element : {Element::kBF16, Element::kF16}) {
    for (const StatisticForm form : {StatisticForm::kParts, StatisticForm::kPartOfDelta}) {
      kernels.push_back({preprocess_source(element, form), 0});
    }
    for (const Sm90BackwardRow& row : sm90_backward_rows()) {
      for (const bool softcap : {false, true}) {
        if (find_sm90_backward(row.head_dim, row.head_dim_v, softcap) != &row) continue;
        const Sm90BackwardSpec spec{traits_of(row, element, softcap)};
        add_once({spec.source(), sm90::bwd::smem_layout(spec.traits).total}, &kernels);
      }
    }
    kernels.push_back({postprocess_source(element, DqLayout::kFragments), 0});
  }
  return kernels;
}

void explain_sm90_backward(const AttentionProblem& p, const Sm90BackwardSpec& spec,
                           std::vector<PlanStep>* steps) {
  const sm90::BwdTraits& t = spec.traits;
  const sm90::bwd::RegisterSplit registers = sm90::bwd::register_split(t);
  explain_kernel(p, spec.source(), t.head_dim, t.head_dim_v, steps);
  steps->push_back(
      {"tile",
       fmt::format("{} queries x {} keys; stages: {} of K, {} of Q, {} of dO{}, {} of dS, {} of dq",
                   t.q_rows, sm90::bwd::kKeys, t.k_stages, t.stages, t.dout_stages,
                   t.split ? fmt::format(" ({} of both for dv)", t.dv_stages) : "", t.ds_stages,
                   t.dq_stages),
       find_sm90_backward(p.head_dim, p.head_dim_v, p.softcap > 0)->reason});
  steps->push_back(
      {"warpgroups",
       fmt::format(
           "1 loads and adds dq ({} registers), {} for scores, dk and dv ({}), 1 for dq ({})",
           registers.load_and_reduce, sm90::bwd::kMathWarpgroups, registers.math, registers.dq),
       "none waits for another one's arithmetic"});
  explain_margin(p, spec.num_sms, steps);
  steps->push_back({"schedule",
                    fmt::format("at most {} CTAs, blocks of keys on demand{}", spec.num_sms,
                                t.split ? ", each twice: dk and dq, dv" : ""),
                    "the next block's loads come under the end of the one before"});
  explain_backward_order(p, spec.subgroups, spec.order, steps);
}

}  // namespace fa4::internal
