#include "plan/sm100_backward_plan.h"

#include <fmt/format.h>

#include "kernels/sm100/backward/layout.h"
#include "plan/gpu_plan.h"
#include "plan/sm100_backward_tuning.h"
#include "plan/subgroups.h"

namespace fa4::internal {
namespace {

using sm100::BwdTraits;

// Steps take a third of Hopper's time, so that a turn takes several: no CTA is far enough behind
// the one before it by its diagonal alone. By a model of the schedule; no Blackwell has run it.
constexpr TurnRow kTurns{.l2_share = 0.8,
                         .l2_share_of_short_heads = 0.8,
                         .columns = 256,
                         .columns_last_first = 256,
                         .pair_works = 3};

const Sm100BackwardRow* find_row(const AttentionProblem& p) {
  return find_sm100_backward(p.head_dim, p.head_dim_v, p.seqlen_k);
}

}  // namespace

// Every member: the compiler counts them.
KernelSource Sm100BackwardSpec::source() const {
  const auto [element, head_dim, head_dim_v, cta_group, q_stages, dout_stages, dv_stages,
              sum_stages, reduce_registers, compute_registers, apart, split, softcap] = traits;
  return {.main_file = "sm100/backward/kernel.cuh",
          .name_expression = fmt::format(
              "fa4::bwd_sm100<fa4::sm100::BwdTraits{{.element={}, .head_dim={}, .head_dim_v={}, "
              ".cta_group={}, .q_stages={}, .dout_stages={}, .dv_stages={}, .sum_stages={}, "
              ".reduce_registers={}, .compute_registers={}, .apart={}, .split={}, .softcap={}}}>",
              enumerator(element), head_dim, head_dim_v, cta_group, q_stages, dout_stages,
              dv_stages, sum_stages, reduce_registers, compute_registers, apart, split, softcap),
          .display_name =
              fmt::format("bwd_sm100_{}_d{}{}{}", name_of(element), head_dims(head_dim, head_dim_v),
                          cta_group > 1 ? "_pair" : "", softcap ? "_softcap" : "")};
}

BackwardShape Sm100BackwardSpec::shape() const {
  return {.source = source(),
          .keys = sm100::bwd::group_keys(traits),
          .q_rows = sm100::bwd::q_rows(traits),
          .k_rows = sm100::bwd::kKeys,
          .qk_slab = sm100::bwd::qk_slab(traits),
          .v_slab = sm100::bwd::v_slab(traits),
          .head_dim = traits.head_dim,
          .head_dim_v = traits.head_dim_v,
          .dq_layout = DqLayout::kRows,
          .statistics = StatisticForm::kRows,
          .threads = sm100::bwd::kNumThreads,
          .smem_bytes = sm100::bwd::smem_layout(traits).total,
          .cluster = traits.cta_group,
          .works_per_block = sm100::bwd::works_per_block(traits),
          .subgroups = subgroups};
}

Support query_sm100_backward_support(const AttentionProblem& p) {
  return query_gpu_backward_support(p, sm100::bwd::kKeys);
}

Sm100BackwardSpec plan_sm100_backward(const AttentionProblem& p, const DeviceSpec& device) {
  Sm100BackwardSpec spec{traits_of(*find_row(p), element_of(p), p.softcap > 0)};
  spec.subgroups = choose_subgroups(p, device, spec.shape());
  spec.order = choose_backward_order(p, device, spec.shape(), kTurns);
  return spec;
}

std::vector<PrebuiltKernel> sm100_backward_kernels() {
  std::vector<PrebuiltKernel> kernels;
  for (const Element element : {Element::kBF16, Element::kF16}) {
    kernels.push_back({preprocess_source(element, StatisticForm::kRows), 0});
    for (const Sm100BackwardRow& row : sm100_backward_rows()) {
      for (const bool softcap : {false, true}) {
        const Sm100BackwardSpec spec{traits_of(row, element, softcap)};
        add_once({spec.source(), spec.shape().smem_bytes}, &kernels);
      }
    }
    kernels.push_back({postprocess_source(element, DqLayout::kRows), 0});
  }
  return kernels;
}

void explain_sm100_backward(const AttentionProblem& p, const Sm100BackwardSpec& spec,
                            std::vector<PlanStep>* steps) {
  const BwdTraits& t = spec.traits;
  const sm100::bwd::RegisterSplit registers = sm100::bwd::register_split(t);
  explain_kernel(p, spec.source(), t.head_dim, t.head_dim_v, steps);
  steps->push_back(
      {"tile",
       fmt::format("{} queries x {} keys, {} and {} stages of Q and dO", sm100::bwd::block_rows(t),
                   sm100::bwd::group_keys(t), t.q_stages, t.dout_stages),
       find_row(p)->reason});
  steps->push_back({"cta_group", fmt::format("{}", t.cta_group),
                    t.cta_group > 1 ? "two CTAs share every product: 128 keys each, dS exchanged"
                                    : "a CTA works on its keys by itself"});
  steps->push_back(
      {"warps",
       fmt::format("2 x 4 for P and dS ({} registers), 4 for dq ({}), {} others ({})",
                   registers.compute, registers.reduce, t.cta_group > 1 ? 4 : 3, registers.other),
       "a warp waits for no other one's arithmetic"});
  steps->push_back({"shared memory", fmt::format("{} bytes", spec.shape().smem_bytes),
                    "dq goes from registers to global memory without it"});
  steps->push_back(
      {"tensor memory",
       fmt::format("{} of {} columns", sm100::bwd::tmem_layout(t).total, sm100::bwd::kTmemColumns),
       t.split   ? "S, dP with dS over it, dK and dQ apart; in works for dv S, P and dV"
       : t.apart ? "S, dP with dS over it, dV, dK, dQ and P apart"
       : sm100::bwd::in_turn(t)
           ? "S with P over it, dP over half of it, dS and dQ over dP, dV, dK: products in turn"
           : "S with P over it, dP with dS over it, dV, dK; dQ over what was read"});
  if (p.sm_margin > 0) {
    steps->push_back({"sms", "all",
                      fmt::format("sm_margin {} changes nothing: a CTA for each block "
                                  "of keys takes every SM that it finds",
                                  p.sm_margin)});
  }
  explain_backward_order(p, spec.subgroups, spec.order, steps);
}

}  // namespace fa4::internal
