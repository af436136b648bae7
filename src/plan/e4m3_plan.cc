#include "plan/e4m3_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/gpu_plan.h"
#include "plan/key_parts.h"

namespace fa4::internal {
namespace {

// clang-format off
constexpr std::array kRows = {
    E4m3TuningRow{
        .head_dim = 64, .head_dim_v = 64,
        .row_warps = 1, .key_warps = 4, .turns = 2, .q_stages = 2, .kv_stages = 6,
        .page_row_stages = 10,
        .reason = "96 KB of keys and values under way: of more the first ones come later; "
                  "160 KB where threads copy rows, not timed with less"},
    E4m3TuningRow{
        .head_dim = 64, .head_dim_v = 64,
        .row_warps = 4, .key_warps = 2, .turns = 1, .q_stages = 2, .kv_stages = 10,
        .reason = "160 KB of keys and values under way"},
    E4m3TuningRow{
        .head_dim = 128, .head_dim_v = 128,
        .row_warps = 1, .key_warps = 4, .turns = 2, .q_stages = 2, .kv_stages = 6,
        .reason = "192 KB of keys and values under way"},
    E4m3TuningRow{
        .head_dim = 128, .head_dim_v = 128,
        .row_warps = 4, .key_warps = 2, .turns = 1, .q_stages = 2, .kv_stages = 5,
        .reason = "160 KB of keys and values under way"},
    E4m3TuningRow{
        .head_dim = 192, .head_dim_v = 128,
        .row_warps = 1, .key_warps = 4, .turns = 2, .q_stages = 2, .kv_stages = 4,
        .reason = "160 KB of keys and values under way"},
    E4m3TuningRow{
        .head_dim = 192, .head_dim_v = 128,
        .row_warps = 4, .key_warps = 2, .turns = 1, .q_stages = 2, .kv_stages = 3,
        .reason = "120 KB of keys and values under way"},
    E4m3TuningRow{
        .head_dim = 192, .head_dim_v = 192,
        .row_warps = 1, .key_warps = 4, .turns = 2, .q_stages = 2, .kv_stages = 4,
        .reason = "192 KB of keys and values under way"},
    E4m3TuningRow{
        .head_dim = 192, .head_dim_v = 192,
        .row_warps = 4, .key_warps = 2, .turns = 1, .q_stages = 2, .kv_stages = 3,
        .reason = "144 KB of keys and values under way"},
    E4m3TuningRow{
        .head_dim = 256, .head_dim_v = 256,
        .row_warps = 1, .key_warps = 8, .turns = 1, .q_stages = 1, .kv_stages = 3,
        .reason = "192 KB of keys and values under way: two turns have no room for it"},
    E4m3TuningRow{
        .head_dim = 256, .head_dim_v = 256,
        .row_warps = 2, .key_warps = 4, .turns = 1, .q_stages = 2, .kv_stages = 2,
        .reason = "128 KB of keys and values under way; 64 keys a warp would spill registers"},
};
// clang-format on

// A tile of one warp's rows where those of a key head are no more, else of several warps'.
const E4m3TuningRow& row_of(const AttentionProblem& p) {
  const int64_t rows = rows_of_key_head(p);
  const bool is_few = rows <= mma::kWarpRows;
  return *std::find_if(kRows.begin(), kRows.end(), [&](const E4m3TuningRow& row) {
    const bool holds = p.head_dim <= row.head_dim && p.head_dim_v <= row.head_dim_v;
    return holds && is_few == (row.row_warps == 1);
  });
}

}  // namespace

std::span<const E4m3TuningRow> e4m3_tuning_rows() { return kRows; }

mma::FwdTraits traits_of(const E4m3TuningRow& row, Element element, bool softcap) {
  return {.element = element,
          .head_dim = row.head_dim,
          .head_dim_v = row.head_dim_v,
          .row_warps = row.row_warps,
          .key_warps = row.key_warps,
          .turns = row.turns,
          .q_stages = row.q_stages,
          .kv_stages = row.kv_stages,
          .softcap = softcap};
}

int e4m3_tile_rows(const AttentionProblem& p) { return mma::kWarpRows * row_of(p).row_warps; }

E4m3ForwardSpec plan_e4m3(const AttentionProblem& p, const DeviceSpec& device) {
  E4m3ForwardSpec spec;
  spec.parts = choose_key_parts(p, device);
  spec.traits = traits_of(row_of(p), element_of(p), p.transforms_scores());
  spec.traits.pages = pages_of(p);
  const int row_stages = row_of(p).page_row_stages;
  if (spec.traits.pages == Pages::kRows && row_stages > 0) spec.traits.kv_stages = row_stages;
  spec.traits.parts = spec.parts.are_cut();
  spec.schedule = spec.parts.are_cut() ? choose_part_schedule(p, device, spec.shape(), spec.parts)
                                       : choose_schedule(p, device, spec.shape(), {});
  return spec;
}

void explain_e4m3(const ForwardPlan& plan, std::vector<PlanStep>* steps) {
  const AttentionProblem& p = plan.problem;
  const auto& spec = std::get<E4m3ForwardSpec>(plan.main);
  const mma::FwdTraits& t = spec.traits;
  explain_kernel(p, spec.source(), t.head_dim, t.head_dim_v, steps);
  steps->push_back({"tile",
                    fmt::format("{} rows x {} keys, {} stages of K and V", mma::tile_m(t),
                                mma::kTileN, t.kv_stages),
                    row_of(p).reason});
  steps->push_back(
      {"warps",
       fmt::format("{} consumers: {} x 16 rows, {} x {} keys of a block, {} turns; {} loaders",
                   mma::consumer_warps(t), t.row_warps, t.key_warps, mma::warp_keys(t), t.turns,
                   mma::loader_warps(t)),
       "bytes become 16 bits in the registers of the warps that multiply them"});
  steps->push_back({"shared memory", fmt::format("{} bytes", spec.shape().smem_bytes),
                    "as many bytes under way as fit"});
  explain_tiles(p, plan.device, spec.parts, spec.schedule, steps);
}

}  // namespace fa4::internal
