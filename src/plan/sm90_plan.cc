#include "plan/sm90_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rounding.h"
#include "plan/gpu_plan.h"
#include "plan/key_parts.h"
#include "plan/sm90_tuning.h"

namespace fa4::internal {
namespace {

constexpr int64_t kMaxGroups = int64_t{1} << 31;  // a coordinate of TMA has 31 bits

// How many keys a query sees at most.
int64_t most_keys(const AttentionProblem& p) {
  const MaskSpec& mask = p.mask;
  if (!mask.is_bounded_left() || !mask.is_bounded_right()) return p.seqlen_k;
  return std::clamp<int64_t>(mask.window_left + mask.window_right + 1, 0, p.seqlen_k);
}

Sm90TuningQuery query_of(const AttentionProblem& p) {
  return {.head_dim = p.head_dim,
          .head_dim_v = p.head_dim_v,
          .mask = p.mask.is_full()           ? MaskKind::kFull
                  : p.mask.is_bounded_left() ? MaskKind::kWindow
                                             : MaskKind::kCausal,
          .seqlen_k = p.seqlen_k,
          .most_keys = most_keys(p),
          .softcap = p.transforms_scores()};
}

// Whether the tiles of `row` take less time than those of `other`. Equal tiles come in rounds of
// one an SM. Others fill the SMs in any case if there are a round and a half of them. num_splits 1
// stands for bits that do not depend on the batch: then a sequence's tiles of one head decide.
bool is_faster(const AttentionProblem& p, const DeviceSpec& device, const Sm90TuningRow& row,
               const Sm90TuningRow& other) {
  const bool by_sequence = p.num_splits == 1;
  const auto tiles = [&](const Sm90TuningRow& of) {
    return by_sequence ? ceil_div(p.seqlen_q, of.tile_m) : count_tiles(p, of.tile_m);
  };
  if (by_sequence || tiles_differ(p)) {
    const bool are_many = by_sequence || 2 * tiles(row) >= 3 * device.num_sms;
    return are_many && tiles(row) * row.tile_time <= tiles(other);
  }
  return ceil_div(tiles(row), device.num_sms) * row.tile_time <=
         ceil_div(tiles(other), device.num_sms);
}

const Sm90TuningRow& row_of(const AttentionProblem& p, const DeviceSpec& device) {
  const Sm90TuningQuery query = query_of(p);
  const auto next = [&](const Sm90TuningRow* row) { return find_sm90_tuning(query, row); };
  const Sm90TuningRow* otherwise = next(nullptr);
  while (otherwise->tile_time > 0) otherwise = next(otherwise);
  const Sm90TuningRow* row = next(nullptr);
  while (row != otherwise && !is_faster(p, device, *row, *otherwise)) row = next(row);
  return *row;
}
const Sm90BytesRow* bytes_row_of(const AttentionProblem& p) {
  return find_sm90_bytes_row(p.head_dim, p.head_dim_v);
}
const Sm90PartRow& part_row_of(const AttentionProblem& p) {
  return *find_sm90_part_row(p.head_dim, p.head_dim_v);
}

bool has_few_rows(const AttentionProblem& p) { return rows_of_key_head(p) <= sm90::kWarpgroupRows; }

// Whole tiles of few rows take the shape of parts: as many bytes under way, and no rows that nobody
// asks for.
bool has_shape_of_parts(const AttentionProblem& p) { return !p.is_quantised() && has_few_rows(p); }

sm90::FwdTraits traits_of_whole_tiles(const AttentionProblem& p, const Sm90TuningRow& row) {
  if (p.is_quantised()) {
    return traits_of(*bytes_row_of(p), element_of(p), p.transforms_scores());
  }
  return has_shape_of_parts(p)
             ? whole_traits_of(part_row_of(p), element_of(p), p.transforms_scores())
             : traits_of(row, element_of(p), p.transforms_scores());
}

// Whether one dimension counts the groups of 8 rows of all pages: TMA has five, and the others are
// columns, slabs, rows of a group and heads.
bool lie_in_groups(const AttentionProblem& p, const Strides& strides) {
  const int64_t group = kGroupRows * strides.seqlen;
  if (group <= 0 || group * kElementBytes >= kMaxStrideBytes || strides.batch % group != 0) {
    return false;
  }
  const int64_t groups_of_page = strides.batch / group;
  return groups_of_page >= p.page_size / kGroupRows &&
         groups_of_page < kMaxGroups / std::max<int64_t>(p.num_pages, 1);
}
// A slab that reaches into the next head would bring its columns, where a box of one slab brings
// zeros.
bool lie_in_groups(const AttentionProblem& p, const sm90::FwdTraits& t) {
  return !t.bytes && sm90::has_groups(t) && p.head_dim == t.head_dim &&
         p.head_dim_v == t.head_dim_v && lie_in_groups(p, p.k) && lie_in_groups(p, p.v);
}

// Whether the tiles of a head come in clusters of the row's, all of whose CTAs visit the same keys.
// CTAs without rows, in the last cluster of a head, may cost a hundredth of the time, which
// clusters save at least.
bool shares_keys(const AttentionProblem& p, const Sm90TuningRow& row, int group) {
  const bool dense = p.layout_q == Layout::kDense && p.layout_kv == Layout::kDense;
  if (row.cluster == 1 || !dense || p.has_seqused_q || p.has_seqused_k) return false;
  const int64_t tiles = ceil_div(p.seqlen_q * packed_rows(group), row.tile_m);
  const int64_t idle = ceil_div(tiles, row.cluster) * row.cluster - tiles;
  return 100 * idle <= tiles;
}

const char* reason_of_q(const sm90::FwdTraits& t) {
  const int warpgroups = sm90::consumer_warpgroups(t);
  if (sm90::late_warpgroups(t) > 0) {
    return "a slot of Q more than warpgroups: the next tile begins under this one's end, and one "
           "warpgroup waits for the other's out to leave";
  }
  if (t.q_slots < 3 * warpgroups) {
    return "two slots of Q a warpgroup or more: the next tile begins under this one's end";
  }
  return "three slots of Q a warpgroup: as two, and the next is there before the last out is "
         "stored";
}

}  // namespace

bool takes_bytes(const AttentionProblem& p, const DeviceSpec& device) {
  if (!p.is_quantised() || device.architecture != "sm_90a" || bytes_row_of(p) == nullptr) {
    return false;
  }
  return !has_few_rows(p) && p.descale_block == 0 && pages_of(p) != Pages::kRows &&
         !choose_key_parts(p, device).are_cut();
}

Sm90ForwardSpec plan_sm90(const AttentionProblem& p, const DeviceSpec& device,
                          std::optional<TileSource> forced) {
  const Sm90TuningRow& row = row_of(p, device);
  Sm90ForwardSpec spec;
  spec.parts = choose_key_parts(p, device);
  spec.traits = spec.parts.are_cut()
                    ? traits_of(part_row_of(p), element_of(p), p.transforms_scores())
                    : traits_of_whole_tiles(p, row);
  spec.traits.pages = pages_of(p);
  if (spec.traits.pages == Pages::kBoxes && lie_in_groups(p, spec.traits)) {
    spec.traits.pages = Pages::kGroups;
  }
  spec.traits.out_f32 = !spec.parts.are_cut() && p.out_dtype == DType::kF32;
  // Beside more than two consumer warpgroups loaders have 32 registers. Those that copy rows of 64
  // columns, four at once, would spill.
  if (spec.traits.pages == Pages::kRows && spec.traits.head_dim == 64) {
    constexpr int kWarpgroups = 2;
    spec.traits.tile_m = std::min(spec.traits.tile_m, kWarpgroups * sm90::kWarpgroupRows);
    spec.traits.q_slots = std::min(spec.traits.q_slots, 3 * kWarpgroups);
  }
  spec.schedule = spec.parts.are_cut() ? choose_part_schedule(p, device, spec.shape(), spec.parts)
                                       : choose_schedule(p, device, spec.shape(), forced);
  // Pairs take tiles by stride alone, and with softcap or out in f32 they are not prebuilt.
  const bool may_pair = !forced && !spec.parts.are_cut() && !has_shape_of_parts(p) &&
                        !p.transforms_scores() && !spec.traits.out_f32 && !spec.traits.bytes;
  if (may_pair && shares_keys(p, row, spec.schedule.group)) {
    spec.traits.cluster = row.cluster;
    spec.schedule = choose_schedule(p, device, spec.shape(), {});
  }
  return spec;
}

void explain_sm90(const ForwardPlan& plan, std::vector<PlanStep>* steps) {
  const AttentionProblem& p = plan.problem;
  const auto& spec = std::get<Sm90ForwardSpec>(plan.main);
  const sm90::FwdTraits& t = spec.traits;
  const bool is_cut = spec.parts.are_cut();
  static constexpr const char* kClusters[][2] = {
      {"one CTA", "each loads its own keys"},
      {"pairs of CTAs", "the same keys: each loads half of a block for both, by multicast"}};
  const sm90::RegisterSplit registers = sm90::register_split(t);
  explain_kernel(p, spec.source(), t.head_dim, t.head_dim_v, steps);
  steps->push_back(
      {"tile",
       fmt::format("{} rows x {} keys, {} stages of K and V", t.tile_m, t.tile_n, t.kv_stages),
       is_cut || has_shape_of_parts(p) ? part_row_of(p).reason
       : t.bytes                       ? bytes_row_of(p)->reason
                                       : row_of(p, plan.device).reason});
  steps->push_back(
      {"warpgroups",
       fmt::format("1 producer ({} registers), {} consumers ({} registers)", registers.producer,
                   sm90::consumer_warpgroups(t), registers.consumer),
       is_cut          ? "memory is waited for, not the tensor cores"
       : t.independent ? "each consumer visits the blocks that its 64 rows see"
                       : "consumers take turns at the tensor cores"});
  if (t.bytes) {
    steps->push_back({"keys", "bytes, 16 bits in shared memory",
                      "three warps of the producer convert each block once for all rows"});
  } else if (!is_cut) {
    steps->push_back({"keys", kClusters[t.cluster - 1][0], kClusters[t.cluster - 1][1]});
  }
  if (t.out_f32) {
    steps->push_back({"out", "f32, by threads", "the place of Q, which TMA stores, is of 16 bits"});
  }
  steps->push_back({"shared memory", fmt::format("{} bytes", spec.shape().smem_bytes),
                    is_cut ? "as many bytes under way as fit" : reason_of_q(t)});
  explain_tiles(p, plan.device, spec.parts, spec.schedule, steps);
}

}  // namespace fa4::internal
