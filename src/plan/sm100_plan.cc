#include "plan/sm100_plan.h"

#include <fmt/format.h>

#include "plan/gpu_plan.h"
#include "plan/key_parts.h"
#include "plan/sm100_tuning.h"

namespace fa4::internal {
namespace {

const Sm100TuningRow& row_of(const AttentionProblem& p) {
  const int64_t rows = rows_of_key_head(p);
  const bool dense = p.layout_q == Layout::kDense && p.layout_kv == Layout::kDense;
  const bool uniform = dense && p.mask.is_full() && !p.has_seqused_q && !p.has_seqused_k;
  return *find_sm100_tuning(p.head_dim, p.head_dim_v, rows, uniform);
}

const Sm100PartRow& part_row_of(const AttentionProblem& p) {
  return *find_sm100_part_row(p.head_dim, p.head_dim_v);
}

}  // namespace

Sm100ForwardSpec plan_sm100(const AttentionProblem& p, const DeviceSpec& device,
                            std::optional<TileSource> forced) {
  Sm100ForwardSpec spec;
  spec.parts = choose_key_parts(p, device);
  const bool is_cut = spec.parts.are_cut();
  spec.traits =
      is_cut ? traits_of(part_row_of(p), device.architecture, element_of(p), p.transforms_scores())
             : traits_of(row_of(p), device.architecture, element_of(p), p.transforms_scores());
  spec.traits.pages = pages_of(p);
  if (spec.traits.pages == Pages::kRows && gathered_rows(p, p.k, p.head_dim) &&
      gathered_rows(p, p.v, p.head_dim_v)) {
    spec.traits.pages = Pages::kGathers;
  }
  spec.traits.out_f32 = !is_cut && p.out_dtype == DType::kF32;
  spec.schedule = is_cut ? choose_part_schedule(p, device, spec.shape(), spec.parts)
                         : choose_schedule(p, device, spec.shape(), forced);
  return spec;
}

void explain_sm100(const ForwardPlan& plan, std::vector<PlanStep>* steps) {
  const AttentionProblem& p = plan.problem;
  const auto& spec = std::get<Sm100ForwardSpec>(plan.main);
  const sm100::FwdTraits& t = spec.traits;
  const sm100::RegisterSplit registers = sm100::register_split(t);
  const bool is_cut = spec.parts.are_cut();
  explain_kernel(p, spec.source(), t.head_dim, t.head_dim_v, steps);
  steps->push_back(
      {"tile",
       fmt::format("{} x {} rows x {} keys, {} stages of K and V", t.q_tiles * t.cta_group,
                   sm100::kTileRows, sm100::kTileN, t.kv_stages),
       is_cut ? part_row_of(p).reason : row_of(p).reason});
  steps->push_back({"cta_group", fmt::format("{}", t.cta_group),
                    t.cta_group > 1 ? "two CTAs share every product: one tile, half of K and V each"
                                    : "a CTA works on a tile by itself"});
  steps->push_back({"exponentials",
                    fmt::format("{} of {} pairs by a polynomial of degree {}", t.polynomial_pairs,
                                sm100::kTileN / 2, t.polynomial_degree),
                    find_sm100_exponential(plan.device.architecture, t.head_dim).reason});
  steps->push_back({"warps",
                    fmt::format("2 x 4 softmax ({} registers), 4 correction ({}), 4 others ({})",
                                registers.softmax, registers.correction, registers.other),
                    t.q_tiles > 1 ? "the two softmax warpgroups take turns at the tensor core"
                                  : "one softmax warpgroup has no tile"});
  steps->push_back({"shared memory", fmt::format("{} bytes", spec.shape().smem_bytes),
                    is_cut                  ? "as many bytes under way as fit"
                    : t.out_f32             ? "out goes from registers to global memory, in f32"
                    : sm100::out_takes_q(t) ? "out takes the place of Q"
                                            : "out has a place of its own: the next tile begins "
                                              "under this one's end"});
  steps->push_back(
      {"tensor memory",
       fmt::format("{} of {} columns", sm100::tmem_layout(t).total, sm100::kTmemColumns),
       t.p_apart ? "scores, probabilities beside them, and output: Q K runs a block ahead"
                 : "scores, with probabilities over them, and output"});
  explain_tiles(p, plan.device, spec.parts, spec.schedule, steps);
}

}  // namespace fa4::internal
