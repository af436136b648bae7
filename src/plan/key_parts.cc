#include "plan/key_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "core/rounding.h"
#include "kernels/output/traits.h"
#include "plan/e4m3_plan.h"
#include "plan/gpu_plan.h"
#include "plan/sm100_tuning.h"
#include "plan/sm90_tuning.h"

namespace fa4::internal {
namespace {

// Indices of parts and of rows are 32 bits wide, also those past the last.
constexpr int64_t kMost = (int64_t{1} << 31) - (int64_t{1} << 20);
// Fewer keys than this are one part's work.
constexpr int64_t kFewestKeys = 257;
// What a call costs, in keys that an SM would read in that time while all SMs read: each part
// beside its keys and the second kernel, or a cluster's exchange in the place of both, any call at
// all. And a key where few SMs read: they have more of the memory's bandwidth each, down to `alone`
// of a key's time.
struct Costs {
  double part, combine, exchange, call, alone;
};
constexpr Costs kCosts{60, 120, 120, 350, 1.0};          // 15 ns a key at head_dim 128
constexpr Costs kCostsOfBytes{120, 240, 240, 700, 1.0};  // 7.5 ns a key
constexpr Costs kHopperCostsOfBytes{120, 240, 240, 700, 0.8};
constexpr double kKeyOfBytes = 7.5, kLeastKeyOfBytes = 4.5;  // the latter at head_dim 64

// The same of a Hopper GPU in nanoseconds, and what an SM takes for a key while memory keeps up:
// the key's bytes, at head_dim 64 more of a block's chain of products and exponentials. Measured on
// an H100 (docs/kernels/decode.md, "What the model counts").
struct HopperCosts {
  double part, combine, exchange, call, key;
};
constexpr HopperCosts kHopperCosts{900, 2000, 900, 3000, 8.0};  // at head_dim 128
constexpr HopperCosts kHopperCostsOf64{800, 1800, 900, 2300, 6.2};
// The key of an H200: between the 8.0 ns where a launch finds the GPU empty and the 11.7 in a long
// row of calls (docs/kernels/decode_measured.md). Nobody has timed rows of calls on an H100.
constexpr double kH200Key = 10.0;
constexpr double kLeastH200Bandwidth = 4e12;  // bytes a second
// The time of a key on a B200 by the model of its kernel: a block of 128 keys takes 1492 clocks at
// head_dim 128 (1374 at 64), its bytes 2240 where all SMs read (docs/kernels/decode.md,
// "Blackwell").
constexpr double kBlackwellShare = 1492.0 / 2240, kLeastBlackwellKey = 5.8;
// The share of the memory's bandwidth that reading keys reaches.
constexpr double kReachedBandwidth = 0.9;

// The most keys of a part where the sequences' lengths differ.
constexpr int64_t kLongestPart = 4096;
// The least of the lengths that even parts are compared at.
constexpr int64_t kShortest = 512;
// Keys are cut where that is at least so many times as fast by these figures, which are estimates.
constexpr double kLeastGain = 1.03;

// How many tiles there are if all sequences have the greatest lengths.
int64_t tiles_of(const AttentionProblem& p, int tile_rows) {
  const int64_t heads = p.heads_q / packable_group(p);
  return std::max<int64_t>(1, p.batch * heads * ceil_div(rows_of_key_head(p), tile_rows));
}

// Keys from the first to the last that a tile's rows see, at most. The last row's position is the
// last key's: no row sees more keys behind its own than there are rows behind it.
int64_t keys_of_tile(const AttentionProblem& p, int tile_rows) {
  const int64_t others = std::min<int64_t>(tile_rows, p.seqlen_q) - 1;
  const int64_t left = p.mask.is_bounded_left() ? p.mask.window_left : p.seqlen_k;
  const int64_t right =
      p.mask.is_bounded_right() ? std::min(p.mask.window_right, p.seqlen_q - 1) : p.seqlen_q - 1;
  return std::clamp<int64_t>(left + right + 1 + others, 1, std::max<int64_t>(1, p.seqlen_k));
}

// Parts of `part_keys` that `keys` lie in at most, from wherever on they begin among `all`.
int64_t most_parts(int64_t keys, int64_t all, int64_t part_keys) {
  return std::min(std::max<int64_t>(1, ceil_div(all, part_keys)),
                  ceil_div(keys - 1, part_keys) + 1);
}

// Clusters of so many CTAs, a power of two from 2 on, that run at once. CTAs of a cluster lie in
// one GPC, and those of two in one TPC, of which a GPU has half as many as SMs. GPCs have 16 SMs
// and more but for one, that may have fewer: of 132 SMs an H100 runs 15 clusters of eight CTAs and
// 30 of four.
int most_clusters(int ctas, int num_sms) {
  constexpr int kGpcSms = 16;
  return ctas == 2 ? num_sms / 2 : std::max(num_sms / kGpcSms - 1, 0) * (kGpcSms / ctas);
}

// CTAs of the clusters that put together so many parts of so many tiles; 1: there are too many
// parts, or CTAs that would wait for others to end.
int cluster_for(int64_t tiles, int64_t parts, int num_sms) {
  if (parts < 2 || parts > kMostClusterCtas) return 1;
  const auto ctas = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(parts)));
  return tiles <= most_clusters(ctas, num_sms) ? ctas : 1;
}

// A way to cut keys: at multiples of `keys`, or where that is 0 evenly into `even` parts.
struct Cut {
  int64_t keys = 0;
  int64_t even = 0;

  // The keys of a part of a sequence that has `seqlen_k` keys.
  int64_t keys_of(int64_t seqlen_k) const {
    return keys > 0 ? keys : round_up(ceil_div(seqlen_k, even), kSplitStep);
  }
  int64_t parts_of(int64_t seqlen_k) const { return ceil_div(seqlen_k, keys_of(seqlen_k)); }
};

// Cuts that are compared for tiles that see at most `longest` keys, from wherever on among `all`.
class Choices {
 public:
  // `may_be_whole`: no cut is a choice too.
  Choices(int64_t tiles, int64_t longest, int64_t all, int num_sms, const Costs& costs,
          bool exchanges, bool may_be_whole)
      : costs_(costs),
        exchanges_(exchanges),
        may_be_whole_(may_be_whole),
        tiles_(tiles),
        longest_(longest),
        all_(all),
        num_sms_(num_sms) {}

  // At multiples: powers of two times kSplitStep, and those that cut the longest evenly.
  void add_multiples(int64_t longest_part) {
    const auto add_one = [&](int64_t keys) {
      if (keys < longest_ && keys <= longest_part) add({.keys = keys});
    };
    for (int64_t keys = kSplitStep; keys < longest_; keys *= 2) add_one(keys);
    for (int64_t parts = 2; parts <= kMostEven; ++parts) {
      add_one(round_up(ceil_div(longest_, parts), kSplitStep));
    }
  }

  // Each sequence's own keys evenly, as many parts of all tiles as run at once.
  void add_even() {
    for (int64_t parts = 2; parts * tiles_ <= num_sms_; parts *= 2) {
      if (parts * kSplitStep <= longest_) add({.even = parts});
    }
  }

  // Where tiles see `keys` keys each: how far behind the best choice each one is, and no cut.
  void compare(int64_t keys) {
    const double whole = rounds(1) * static_cast<double>(keys) * of_all(tiles_) + costs_.call;
    double best = may_be_whole_ ? whole : std::numeric_limits<double>::infinity();
    std::array<double, kMostCuts> times{};
    for (size_t i = 0; i < count_; ++i) {
      times[i] = time_of(cuts_[i], keys);
      best = std::min(best, times[i]);
    }
    whole_behind_ = std::max(whole_behind_, whole / best);
    for (size_t i = 0; i < count_; ++i) behind_[i] = std::max(behind_[i], times[i] / best);
  }

  // The one that is least behind where it is most so, of equals the one with the longest parts;
  // none: no cut.
  std::optional<Cut> least_behind() const {
    double least = std::numeric_limits<double>::infinity();
    std::optional<Cut> found;
    for (size_t i = 0; i < count_; ++i) {
      if (behind_[i] > least) continue;
      if (behind_[i] == least && cuts_[i].keys_of(longest_) <= found->keys_of(longest_)) continue;
      least = behind_[i];
      found = cuts_[i];
    }
    return !may_be_whole_ || whole_behind_ >= kLeastGain * least ? found : std::nullopt;
  }

 private:
  void add(Cut cut) { cuts_[count_++] = cut; }

  double rounds(int64_t parts) const {
    return static_cast<double>(ceil_div(tiles_ * parts, num_sms_));
  }

  // What a key takes of the time that it takes where all SMs read.
  double of_all(int64_t ctas) const {
    return std::clamp(static_cast<double>(ctas) / num_sms_, costs_.alone, 1.0);
  }

  // The parts of a tile that sees `keys` keys; where those are fewer than `longest_`, its sequence
  // has no others.
  int64_t parts_of(const Cut& cut, int64_t keys) const {
    return most_parts(keys, keys == longest_ ? all_ : keys, cut.keys_of(keys));
  }

  double time_of(const Cut& cut, int64_t keys) const {
    const int64_t parts = parts_of(cut, keys);
    const double each = static_cast<double>(std::min(keys, cut.keys_of(keys)));
    // Keys that begin anywhere lie in one part more, so that parts have fewer in the mean.
    const bool begin_anywhere = parts > cut.parts_of(keys);
    const double mean =
        begin_anywhere ? static_cast<double>(keys) / static_cast<double>(parts) : each;
    const double reading = std::max(each * costs_.alone, mean * of_all(tiles_ * parts));
    if (is_exchanged(cut)) return reading + costs_.exchange + costs_.call;
    return rounds(parts) * (reading + costs_.part) + costs_.combine + costs_.call;
  }

  // Whatever lengths the sequences have: the launch is that of the longest.
  bool is_exchanged(const Cut& cut) const {
    return exchanges_ && cluster_for(tiles_, parts_of(cut, longest_), num_sms_) > 1;
  }

  static constexpr int kMostEven = 16;
  static constexpr size_t kMostCuts = 31 + kMostEven + 16;

  Costs costs_;
  bool exchanges_, may_be_whole_;
  int64_t tiles_, longest_, all_;
  int num_sms_;
  size_t count_ = 0;
  std::array<Cut, kMostCuts> cuts_{};
  std::array<double, kMostCuts> behind_{};
  double whole_behind_ = 0;
};

// Whether the kernel of the problem's parts can put them together inside a cluster.
bool can_exchange(const AttentionProblem& p, const DeviceSpec& device) {
  if (p.is_quantised() || is_sm100(device.architecture)) return false;
  return sm90::can_exchange_parts(
      traits_of(*find_sm90_part_row(p.head_dim, p.head_dim_v), element_of(p), false));
}

// Where parts may meet in clusters by the device's own bandwidth.
Costs costs_of(const AttentionProblem& p, const DeviceSpec& device, bool exchanges) {
  const bool blackwell = is_sm100(device.architecture);
  if (p.is_quantised()) return blackwell ? kCostsOfBytes : kHopperCostsOfBytes;
  if (!exchanges) return kCosts;
  const HopperCosts& ns = p.head_dim <= 64 ? kHopperCostsOf64 : kHopperCosts;
  const KeyTime key = key_time(p, device);
  return {ns.part / key.of_all, ns.combine / key.of_all, ns.exchange / key.of_all,
          ns.call / key.of_all, std::min(1.0, key.of_one / key.of_all)};
}

// The plan knows the greatest lengths alone. Where sequences may be shorter it looks at that length
// and at its halves, as far down as kShortest where even parts may be chosen, which suit all of
// them; else at one half, and no part is so long that one which ends last keeps the others waiting.
std::optional<Cut> choose_cut(const AttentionProblem& p, int tile_rows, const DeviceSpec& device) {
  const bool lengths_differ = p.has_seqused_k || p.layout_kv == Layout::kPacked;
  const int64_t longest = keys_of_tile(p, tile_rows), tiles = tiles_of(p, tile_rows);
  const bool exchanges = can_exchange(p, device);
  // Behind a window a sequence's own keys are not its tiles'.
  const bool may_be_even =
      lengths_differ && !p.mask.is_bounded_left() && 2 * tiles <= device.num_sms;
  Choices choices(tiles, longest, p.seqlen_k, device.num_sms, costs_of(p, device, exchanges),
                  exchanges, !lengths_differ || longest <= kLongestPart);
  choices.add_multiples(lengths_differ ? kLongestPart : longest);
  if (may_be_even) choices.add_even();
  choices.compare(longest);
  if (lengths_differ) choices.compare(longest / 2);
  if (may_be_even) {
    for (int64_t keys = longest / 4; keys >= kShortest; keys /= 2) choices.compare(keys);
  }
  return choices.least_behind();
}

// A CTA counts each tile's parts from the first that any row of the sequence sees to the last. The
// workspace has sums for every row of packed q, of which total_q may be more than sequences have.
bool are_countable(const AttentionProblem& p, int tile_rows, const Cut& cut) {
  const int64_t parts = std::max<int64_t>(1, cut.parts_of(p.seqlen_k));
  return p.batch * p.seqlen_q * p.heads_q < kMost && tiles_of(p, tile_rows) < kMost / parts &&
         p.lse_elements() < kMost / parts * tile_rows;
}

// Where the kernel of whole tiles writes no out that is not of the inputs' type, who puts parts
// together does.
bool needs_parts(const AttentionProblem& p, const DeviceSpec& device) {
  return p.out_dtype != p.dtype && !tiles_store_f32(p, device);
}

// None: keys are not cut.
std::optional<Cut> cut_of(const AttentionProblem& p, const DeviceSpec& device) {
  const int tile_rows = part_tile_rows(p, device);
  const int64_t all = std::max(kSplitStep, round_up(p.seqlen_k, kSplitStep));
  if (p.split_keys > 0) return Cut{.keys = std::min(p.split_keys, all)};
  if (p.num_splits > 1) return Cut{.keys = round_up(ceil_div(all, p.num_splits), kSplitStep)};
  const bool may_choose = p.num_splits == 0 && rows_of_key_head(p) <= tile_rows;
  if (may_choose && p.seqlen_k >= kFewestKeys) {
    const std::optional<Cut> cut = choose_cut(p, tile_rows, device);
    if (cut && are_countable(p, tile_rows, *cut)) return cut;
  }
  return needs_parts(p, device) ? std::optional(Cut{.keys = all}) : std::nullopt;
}

}  // namespace

KeyTime key_time(const AttentionProblem& p, const DeviceSpec& device) {
  const auto columns = static_cast<double>(p.head_dim + p.head_dim_v);
  const bool blackwell = is_sm100(device.architecture);
  if (p.is_quantised()) {
    const double of_all = kKeyOfBytes * columns / 256;
    const double alone = blackwell ? kCostsOfBytes.alone : kHopperCostsOfBytes.alone;
    return {std::max(alone * of_all, kLeastKeyOfBytes), of_all};
  }
  const double bandwidth =
      device.memory_bandwidth > 0 ? device.memory_bandwidth : h200_spec().memory_bandwidth;
  const double of_all =
      1e9 * columns * kElementBytes * device.num_sms / (kReachedBandwidth * bandwidth);
  if (blackwell) return {std::max(kBlackwellShare * of_all, kLeastBlackwellKey), of_all};
  const bool narrow = p.head_dim <= 64;
  const HopperCosts& ns = narrow ? kHopperCostsOf64 : kHopperCosts;
  const double key = bandwidth < kLeastH200Bandwidth ? ns.key : kH200Key;
  return {narrow ? ns.key : key * columns / 256, of_all};
}

bool tiles_store_f32(const AttentionProblem& p, const DeviceSpec& device) {
  return !p.is_quantised() && !p.transforms_scores() &&
         rows_of_key_head(p) > part_tile_rows(p, device);
}

int part_tile_rows(const AttentionProblem& p, const DeviceSpec& device) {
  if (p.is_quantised()) return e4m3_tile_rows(p);
  return is_sm100(device.architecture) ? sm100::kTileRows : sm90::kWarpgroupRows;
}

Support query_key_parts(const AttentionProblem& p, const DeviceSpec& device) {
  if (p.split_keys == 0 && p.num_splits <= 1 && !needs_parts(p, device)) return {};
  const int tile_rows = part_tile_rows(p, device);
  if (are_countable(p, tile_rows, *cut_of(p, device))) return {};
  const bool packed = p.layout_q == Layout::kPacked;
  return {false, fmt::format("{} {} with batch {}, heads_q {}, seqlen_q {}{} and seqlen_k {}; "
                             "accepted on a GPU: below 2^31 - 2^20 rows of all heads (batch * "
                             "seqlen_q * heads_q), and as many parts of tiles of {} rows",
                             p.split_keys > 0   ? "split_keys"
                             : p.num_splits > 1 ? "num_splits"
                                                : "out_dtype f32, splits",
                             p.split_keys > 0 ? p.split_keys : p.num_splits, p.batch, p.heads_q,
                             p.seqlen_q, packed ? fmt::format(" (total_q {})", p.total_q) : "",
                             p.seqlen_k, tile_rows)};
}

KeyParts choose_key_parts(const AttentionProblem& p, const DeviceSpec& device) {
  const std::optional<Cut> cut = cut_of(p, device);
  if (!cut) return {};
  const int tile_rows = part_tile_rows(p, device);
  const int64_t most =
      cut->keys > 0 ? most_parts(keys_of_tile(p, tile_rows), p.seqlen_k, cut->keys) : cut->even;
  const bool has_tiles = p.batch > 0 && p.seqlen_q > 0;
  return {.keys = static_cast<int>(cut->keys),
          .most = static_cast<int>(most),
          .cluster = has_tiles && can_exchange(p, device)
                         ? cluster_for(tiles_of(p, tile_rows), most, device.num_sms)
                         : 1};
}

PlanStep explain_key_parts(const AttentionProblem& p, const DeviceSpec& device,
                           const KeyParts& parts) {
  if (!parts.are_cut()) {
    const char* why = p.num_splits == 1 ? "num_splits is 1"
                      : rows_of_key_head(p) > part_tile_rows(p, device)
                          ? "tiles of rows are work for all SMs, and nothing asks for splits"
                          : "parts of the keys would be no faster";
    return {"splits", "none", why};
  }
  const char* why = p.split_keys > 0   ? "split_keys says so"
                    : p.num_splits > 1 ? "num_splits of the longest sequence"
                    : parts.most == 1  ? "out is not of the inputs' type"
                                       : "few rows: parts of the keys are work for all SMs";
  const std::string cut =
      parts.are_even() ? fmt::format("a sequence's own keys, evenly into {}", parts.most)
                       : fmt::format("{} keys, at most {} parts of a row", parts.keys, parts.most);
  return {"splits", cut,
          fmt::format("{}; {} a row's parts together in their order", why,
                      parts.cluster > 1 ? "the CTAs of a cluster put" : "a second kernel puts")};
}

}  // namespace fa4::internal
