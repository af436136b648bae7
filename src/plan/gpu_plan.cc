#include "plan/gpu_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/rounding.h"
#include "plan/key_parts.h"

namespace fa4::internal {
namespace {

// Positions and windows add up in 32 bits, also those of rows past the end in the last tile.
constexpr int64_t kMaxRows = (int64_t{1} << 30) - 512;
// Indices of tiles are 32 bits wide, also those past the last tile that each cluster asks for:
// there are at most two, and fewer than 2^16 clusters run at a time.
constexpr int64_t kMaxTiles = (int64_t{1} << 31) - (int64_t{1} << 20);
constexpr int kSmallestTile = 64;  // rows
// Tiles of a section of heads, for each SM: enough that the short tiles of the last one fill the
// end, few enough that its keys stay in the L2 cache until all its tiles have read them. On an
// H200, 256 to 32768 causal keys, head_dim 64 to 256: two were within 1 % of the best number or it,
// one cost 1 to 8 %, a section of the whole cache 2 to 16 % (docs/kernels/fwd_sm90_tiles.md).
constexpr int64_t kTilesOfSection = 2;
// Heads of a few tiles wait for memory: the long ones of a whole section at once for its rate, the
// short ones behind them, whose keys are in the cache by then, for little. Where there are many
// rounds, smaller sections mix them: a head for every four SMs gave 1.03 to 1.07 x at head_dim 192
// and 256, 256 and 512 causal keys, and 1.00 x below (the same page).
constexpr int64_t kTilesOfShortHead = 4;
constexpr int64_t kSmsOfShortHead = 4;
constexpr int64_t kManyRounds = 8;

// Queries come first: the keys of a sequence may be as many because nobody said otherwise.
std::string check_rows(const AttentionProblem& p) {
  const int heads = packed_rows(packable_group(p));  // whose rows of a query are one tile's
  const struct {
    const char* name;
    int64_t value, most;
  } counts[] = {{"seqlen_q", p.seqlen_q, (kMaxRows - 1) / heads},
                {"total_q", p.total_q, kMaxRows - 1},
                {"seqlen_k", p.seqlen_k, kMaxRows - 1},
                {"total_k", p.total_k, kMaxRows - 1}};
  for (const auto& count : counts) {
    if (count.value <= count.most) continue;
    return fmt::format(
        "{} {}; accepted on a GPU: at most {}{}", count.name, count.value, count.most,
        count.most == kMaxRows - 1 ? ""
                                   : fmt::format(", as a query takes {} rows of a tile", heads));
  }
  return "";
}

std::string check_all_strides(const AttentionProblem& p) {
  const bool packed_q = p.layout_q == Layout::kPacked, packed_k = p.layout_kv == Layout::kPacked;
  const int64_t rows_q = packed_q ? p.total_q : p.seqlen_q;
  const bool paged = p.layout_kv == Layout::kPaged;
  const int64_t rows_k = packed_k ? p.total_k : paged ? p.page_size : p.seqlen_k;
  const int64_t batch_k = paged ? p.num_pages : p.batch;
  for (const std::string& problem :
       {check_gpu_strides("q", p.q, 2, p.batch, rows_q, p.heads_q, packed_q),
        check_gpu_strides("k", p.k, size_of(p.kv_dtype), batch_k, rows_k, p.heads_kv, packed_k),
        check_gpu_strides("v", p.v, size_of(p.kv_dtype), batch_k, rows_k, p.heads_kv, packed_k),
        check_gpu_strides("out", p.out, static_cast<int>(size_of(p.out_dtype)), p.batch, rows_q,
                          p.heads_q, packed_q)}) {
    if (!problem.empty()) return problem;
  }
  return "";
}

// An upper bound for packed sequences, whose lengths the host does not know.
int64_t num_tiles(const AttentionProblem& p, int tile_m, int group) {
  const int64_t heads = p.heads_q / group;
  const int64_t rows = packed_rows(group);  // of a position
  const int64_t dense = capped_product(p.batch * heads, ceil_div(p.seqlen_q * rows, tile_m));
  if (p.layout_q != Layout::kPacked) return dense;
  return std::min(dense, (ceil_div(p.total_q * rows, tile_m) + p.batch) * heads);
}

// Longer queries fill tiles by themselves, and their rows see fewer keys in common. Of packed
// sequences both counts are bounds, so that a tenth decides: prompts alone go head by head, but not
// the few queries of many sequences that one call has beside them.
int choose_group(const AttentionProblem& p, int tile_m) {
  const int group = packable_group(p);
  const int64_t packed = num_tiles(p, tile_m, group);
  const int64_t unpacked = num_tiles(p, tile_m, 1);
  const bool is_bound = p.layout_q == Layout::kPacked;
  return packed < (is_bound ? unpacked - unpacked / 10 : unpacked) ? group : 1;
}

// Whether each sequence has as many queries or keys as index tensors say.
bool lengths_vary(const AttentionProblem& p) {
  const bool packed = p.layout_q == Layout::kPacked || p.layout_kv == Layout::kPacked;
  return packed || p.has_seqused_q || p.has_seqused_k;
}

// Without a mask tiles are equally long and go head by head. `tiles`: of all heads.
int choose_sections(const AttentionProblem& p, const DeviceSpec& device, const LaunchShape& shape,
                    int group, int64_t tiles) {
  const bool packed = p.layout_q == Layout::kPacked;
  const int64_t heads = std::max<int64_t>(p.heads_q / group * (packed ? 1 : p.batch), 1);
  const int64_t tiles_of_head =
      ceil_div(std::max<int64_t>(p.seqlen_q, 1) * packed_rows(group), shape.tile_m);
  int64_t section = ceil_div(kTilesOfSection * device.num_sms, tiles_of_head * shape.cluster);
  const bool has_many = tiles >= kManyRounds * device.num_sms;
  if (p.mask.is_full()) {
    section = 1;
  } else if (tiles_of_head <= kTilesOfShortHead && has_many) {
    section = std::min(section, ceil_div(device.num_sms, kSmsOfShortHead));
  }
  return static_cast<int>(ceil_div(heads, std::min(section, heads)));
}

// Whether the device can rank tiles by their keys: few rows, so that a sequence is one tile of each
// head, which begins with its first key.
bool can_rank(const AttentionProblem& p, const LaunchShape& shape, int group) {
  return p.batch <= shape.most_ranked && !p.mask.is_bounded_left() &&
         p.seqlen_q * packed_rows(group) <= shape.tile_m;
}

// Whether such tiles do, where only the device knows their lengths. Ranking costs 1 to 3 us. Beyond
// two rounds it saves the counter's memset; else it saves the more, the more keys a tile may have,
// and bytes take half the time (docs/kernels/decode_measured.md, "Two rounds").
bool goes_by_length(const AttentionProblem& p, const LaunchShape& shape, int group, int64_t tiles,
                    int64_t ctas, int64_t tile_keys) {
  constexpr int64_t kKeys = 512, kKeysOfBytes = 1024;
  if (!can_rank(p, shape, group) || !lengths_vary(p) || tiles <= ctas) return false;
  if (tiles > 2 * ctas && shape.counter) return true;
  return tile_keys >= (p.is_quantised() ? kKeysOfBytes : kKeys);
}

// Tiles that differ in length are handed out on demand, when there are more than two rounds of them
// or only the device knows how long they are. Two rounds need no counter, whose memset takes 2 us
// and would keep the launch from beginning while the one before it ends.
//
// Where a tile's time is that of reading its keys, two rounds by stride cost less than that even if
// only the device knows the lengths, and ranking takes the counter's place beyond them, or where
// there are many keys (docs/kernels/decode.md).
TileSource choose_source(const AttentionProblem& p, const LaunchShape& shape, int64_t tiles,
                         int64_t clusters, int group, std::optional<TileSource> forced) {
  // Tiles of packed queries are not counted on the host. Taking over what has not started needs a
  // CTA for each tile, which takes every SM that it finds.
  const bool launch_control =
      shape.launch_control && p.layout_q != Layout::kPacked && p.sm_margin == 0;
  if (shape.cluster > 1) return TileSource::kStride;
  if (forced && (launch_control || *forced != TileSource::kLaunchControl)) return *forced;
  if (!tiles_differ(p) || tiles <= clusters) return TileSource::kStride;
  if (launch_control) return TileSource::kLaunchControl;
  if (goes_by_length(p, shape, group, tiles, clusters, p.seqlen_k)) return TileSource::kByLength;
  if (can_rank(p, shape, group)) return TileSource::kStride;  // few keys, or as many each
  const bool two_rounds = tiles <= 2 * clusters;
  if (two_rounds && !lengths_vary(p)) return TileSource::kThereAndBack;
  if (!shape.counter || (two_rounds && shape.reads_keys_once)) return TileSource::kStride;
  return TileSource::kCounter;
}

bool leaves_sms(const TileSchedule& s, const DeviceSpec& device) {
  return s.grid <= device.num_sms - device.num_sms / 8;
}

void explain_group(const TileSchedule& s, std::vector<PlanStep>* steps) {
  steps->push_back({"pack_gqa", fmt::format("{} query heads in a tile's rows", s.group),
                    s.group > 1 ? "fewer tiles than head by head"
                                : "packing saves no tiles (of packed q less than a tenth), or the "
                                  "group is above 128 or its stride above TMA's"});
}

PlanStep explain_part_schedule(const TileSchedule& s, const KeyParts& parts) {
  if (parts.cluster > 1) {
    return {"schedule",
            fmt::format("{} CTAs in clusters of {}, a part each", s.grid, parts.cluster),
            "all run at once: a tile's parts meet in shared memory, not in the workspace"};
  }
  if (s.source == TileSource::kByLength) {
    return {"schedule", fmt::format("{} CTAs, parts there and back, longest first", s.grid),
            "each ranks the sequences by their keys"};
  }
  return {"schedule", fmt::format("{} CTAs, parts by stride", s.grid),
          "each counts the parts of the sequences' own lengths"};
}

void explain_schedule(const AttentionProblem& p, const TileSchedule& s,
                      std::vector<PlanStep>* steps) {
  std::string order = "all tiles are equally long";
  if (tiles_differ(p)) order = "which sequences are long is in device memory";
  if (s.longest_first)
    order = fmt::format("{} sections of heads, whose keys stay in the L2 cache", s.sections);
  // Tiles of packed queries are counted sequence by sequence, where nobody ranks them.
  const bool by_sequence = p.layout_q == Layout::kPacked && p.batch > 1;
  const char* longest_first = by_sequence && s.source != TileSource::kByLength
                                  ? "longest tiles of each sequence first, in the batch's order"
                                  : "longest tiles first";
  steps->push_back({"order", s.longest_first ? longest_first : "head by head", order});
  const char* kSources[][2] = {
      {"tiles by stride",
       tiles_differ(p) ? "two rounds at most, or a kernel without a counter" : "equal tiles"},
      {"tiles there and back", "two rounds: whose first tile was the longest has the shortest"},
      {"tiles on demand", "tiles differ in length: a counter in the workspace"},
      {"tiles by launch control", "tiles differ in length: a CTA takes over those not started"},
      {"tiles there and back, longest first", "each ranks the sequences by their keys"}};
  const auto& source = kSources[static_cast<int>(s.source)];
  steps->push_back({"schedule", fmt::format("{} CTAs, {}", s.grid, source[0]), source[1]});
}

}  // namespace

std::string check_gpu_strides(const char* tensor, const Strides& strides, int element_bytes,
                              int64_t batch, int64_t seqlen, int64_t heads, bool packed) {
  const struct {
    const char* name;
    int64_t value;
    bool used;
  } rows[] = {{"batch", strides.batch, batch > 1 && !packed},
              {"seqlen", strides.seqlen, seqlen > 1},
              {"head", strides.head, heads > 1}};
  for (const auto& row : rows) {
    if (!row.used) continue;  // it may be anything
    const int64_t bytes = capped_product(row.value, element_bytes);
    if (bytes % 16 != 0 || bytes < 0 || bytes >= kMaxStrideBytes) {
      return fmt::format(
          "{} stride {} of {} is {} bytes; accepted on a GPU: multiples of 16 bytes from 0 to "
          "2^40",
          row.name, row.value, tensor, bytes);
    }
  }
  return "";
}

Support query_gpu_support(const AttentionProblem& p) {
  const auto no = [](std::string reason) { return Support{false, std::move(reason)}; };
  if (p.dtype == DType::kF32) return no("dtype f32; accepted on a GPU: bf16, f16");
  if (std::string rows = check_rows(p); !rows.empty()) return no(std::move(rows));
  if (num_tiles(p, kSmallestTile, 1) >= kMaxTiles) {
    return no(fmt::format(
        "batch {} with heads_q {} and seqlen_q {}; accepted on a GPU: below 2^31 - 2^20 "
        "tiles of 64 rows",
        p.batch, p.heads_q, p.seqlen_q));
  }
  const std::string strides = check_all_strides(p);
  return strides.empty() ? Support{} : no(strides);
}

DeviceSpec without_margin(DeviceSpec device, const AttentionProblem& p) {
  const int64_t least = std::min(2, device.num_sms);
  device.num_sms = static_cast<int>(std::max(device.num_sms - p.sm_margin, least));
  return device;
}

int packable_group(const AttentionProblem& p) {
  constexpr int64_t kMostHeads = 128;
  // The group's own stride is one to TMA.
  const int64_t stride = std::max(p.q.head, p.out.head);
  const bool packable = p.group() <= kMostHeads && stride <= (kMaxStrideBytes / 2 - 1) / p.group();
  return packable ? static_cast<int>(p.group()) : 1;
}

int packed_rows(int group) { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(group))); }

int64_t rows_of_key_head(const AttentionProblem& p) {
  return p.seqlen_q * packed_rows(packable_group(p));
}

std::optional<GatheredRows> gathered_rows(const AttentionProblem& p, const Strides& strides,
                                          int64_t columns) {
  constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;  // one past them is a coordinate, too
  const int64_t extents[] = {p.num_pages, p.page_size, p.heads_kv};
  const int64_t distances[] = {strides.batch, strides.seqlen, strides.head};
  int64_t unit = 0, last = 0;
  for (int i = 0; i < 3; ++i) {
    if (extents[i] <= 1) continue;
    unit = std::gcd(unit, distances[i]);
    last += (extents[i] - 1) * distances[i];
  }
  if (unit == 0) unit = columns;
  if (unit < columns || unit % 8 != 0 || unit * kElementBytes >= kMaxStrideBytes) return {};
  if (last / unit >= kMostRows) return {};
  return GatheredRows{unit, last / unit + 1};
}

Pages pages_of(const AttentionProblem& p) {
  return fa4::pages_of(static_cast<int>(p.page_size), static_cast<int>(p.prefix_len));
}

bool tiles_differ(const AttentionProblem& p) { return !p.mask.is_full() || lengths_vary(p); }

int64_t count_tiles(const AttentionProblem& p, int tile_m) {
  return num_tiles(p, tile_m, choose_group(p, tile_m));
}

TileSchedule choose_schedule(const AttentionProblem& p, const DeviceSpec& device,
                             const LaunchShape& shape, std::optional<TileSource> forced) {
  TileSchedule s;
  s.group = choose_group(p, shape.tile_m);
  const int64_t tiles = num_tiles(p, shape.tile_m, s.group);
  const int64_t clusters = device.num_sms / shape.cluster;
  s.source = choose_source(p, shape, tiles, clusters, s.group, forced);
  const int64_t most = s.source == TileSource::kLaunchControl ? kMaxTiles - 1 : clusters;
  s.grid = static_cast<int>(std::clamp<int64_t>(tiles, 1, most)) * shape.cluster;
  s.leaves_sms = leaves_sms(s, device);
  s.longest_first = !p.mask.is_full();
  s.sections = choose_sections(p, device, shape, s.group, tiles);
  return s;
}

TileSchedule choose_part_schedule(const AttentionProblem& p, const DeviceSpec& device,
                                  const LaunchShape& shape, const KeyParts& parts) {
  TileSchedule s;
  s.group = choose_group(p, shape.tile_m);
  if (parts.cluster > 1) {  // one for each tile that the greatest lengths allow
    const int64_t blocks = ceil_div(p.seqlen_q * packed_rows(s.group), shape.tile_m);
    s.grid = static_cast<int>(p.batch * blocks * (p.heads_q / s.group)) * parts.cluster;
    s.leaves_sms = leaves_sms(s, device);
    return s;
  }
  const int64_t tiles = num_tiles(p, shape.tile_m, s.group) * parts.most;
  s.grid = static_cast<int>(std::clamp<int64_t>(tiles, 1, device.num_sms));
  if (!parts.are_even() && goes_by_length(p, shape, s.group, tiles, device.num_sms, parts.keys)) {
    s.source = TileSource::kByLength;
  }
  return s;
}

void explain_kernel(const AttentionProblem& p, const KernelSource& source, int head_dim,
                    int head_dim_v, std::vector<PlanStep>* steps) {
  steps->push_back({"kernel", source.display_name, source.name_expression});
  steps->push_back({"head_dim", fmt::format("{} x {}", head_dim, head_dim_v),
                    fmt::format("the first kernel that holds {} x {}", p.head_dim, p.head_dim_v)});
}

void explain_margin(const AttentionProblem& p, int num_sms, std::vector<PlanStep>* steps) {
  if (p.sm_margin == 0) return;
  steps->push_back({"sms", fmt::format("{} at most", num_sms),
                    fmt::format("sm_margin {}: the others are left to other work", p.sm_margin)});
}

void explain_tiles(const AttentionProblem& p, const DeviceSpec& device, const KeyParts& parts,
                   const TileSchedule& schedule, std::vector<PlanStep>* steps) {
  explain_margin(p, device.num_sms, steps);
  steps->push_back(explain_key_parts(p, device, parts));
  explain_group(schedule, steps);
  if (parts.are_cut()) {
    steps->push_back(explain_part_schedule(schedule, parts));
  } else {
    explain_schedule(p, schedule, steps);
  }
}

}  // namespace fa4::internal
