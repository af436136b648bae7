#include "plan/key_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

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
// What a call costs, in keys that an SM would read in that time: each part beside its keys, the
// second kernel, or a cluster's exchange in its place, any call at all. And a key where few SMs
// read: they have more of the memory's bandwidth each, down to `alone` of a key's time.
struct Costs {
  double part, combine, exchange, call, alone;
};
constexpr Costs kCosts{60, 120, 120, 350, 1.0};  // 15 ns a key at head_dim 128
// Measured on an H200: 64 SMs read 8192 keys each in 0.54, 1024 in 0.59 of a full GPU's time a key.
constexpr Costs kHopperCosts{60, 150, 40, 350, 0.57};
// 7.5 ns a key, and a block's chain of products and exponentials is nearly as long as its bytes.
constexpr Costs kHopperCostsOf64{300, 240, 80, 700, 0.6};
// Of bytes: 7.5 ns a key.
constexpr Costs kCostsOfBytes{120, 240, 240, 700, 1.0};
// Of sequences whose lengths differ.
constexpr int64_t kLongestPart = 4096;
// Keys are cut where that is at least so many times as fast by these figures, which are estimates.
constexpr double kLeastGain = 1.03;

int64_t rows_of_key_head(const AttentionProblem& p) {
  return p.seqlen_q * packed_rows(packable_group(p));
}

// Of all sequences of the greatest lengths.
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

// Of `keys`, from wherever on they begin.
int64_t most_parts(const AttentionProblem& p, int tile_rows, int64_t part_keys) {
  const int64_t all = std::max<int64_t>(1, ceil_div(p.seqlen_k, part_keys));
  return std::min(all, ceil_div(keys_of_tile(p, tile_rows) - 1, part_keys) + 1);
}

// CTAs of a cluster lie in one GPC, which has at least this many SMs wherever a cluster of as many
// can run at all.
constexpr int kGpcSms = 16;

// CTAs of the clusters that put together so many parts of so many tiles; 1: there are too many
// parts, or CTAs that would wait for others to end.
int cluster_for(int64_t tiles, int64_t parts, int num_sms) {
  if (parts < 2 || parts > kMostClusterCtas) return 1;
  const auto ctas = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(parts)));
  return tiles <= num_sms / kGpcSms * kGpcSms / ctas ? ctas : 1;
}

// Parts that are compared, in multiples of kSplitStep: its powers of two, and the longest keys cut
// evenly.
class Choices {
 public:
  Choices(int64_t longest, int64_t longest_part, const Costs& costs, bool exchanges)
      : costs_(costs), exchanges_(exchanges), longest_(static_cast<double>(longest)) {
    const auto add = [&](int64_t keys) {
      if (keys < longest && keys <= longest_part) keys_[count_++] = static_cast<double>(keys);
    };
    for (int64_t keys = kSplitStep; keys < longest; keys *= 2) add(keys);
    for (int64_t parts = 2; parts <= kMostEven; ++parts) {
      add(round_up(ceil_div(longest, parts), kSplitStep));
    }
  }

  // Tiles that see `keys` keys each: how far behind the best choice each one is, and no cut.
  void compare(double tiles, double keys, int num_sms) {
    const auto rounds = [&](double parts) { return std::ceil(tiles * parts / num_sms); };
    const double whole = rounds(1) * keys + costs_.call;
    double best = whole;
    std::array<double, kMost> times{};
    for (size_t i = 0; i < count_; ++i) {
      const double parts = std::ceil(keys / keys_[i]);
      const double share = std::clamp(tiles * parts / num_sms, costs_.alone, 1.0);
      times[i] = rounds(parts) * (std::min(keys, keys_[i]) * share + costs_.part) +
                 (is_exchanged(tiles, i, num_sms) ? costs_.exchange : costs_.combine) + costs_.call;
      best = std::min(best, times[i]);
    }
    whole_behind_ = std::max(whole_behind_, whole / best);
    for (size_t i = 0; i < count_; ++i) behind_[i] = std::max(behind_[i], times[i] / best);
  }

  // The one that is least behind where it is most so, of equals the longest; 0: no cut.
  int64_t least_behind() const {
    double least = std::numeric_limits<double>::infinity(), keys = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (behind_[i] > least || (behind_[i] == least && keys_[i] <= keys)) continue;
      least = behind_[i];
      keys = keys_[i];
    }
    return whole_behind_ >= kLeastGain * least ? static_cast<int64_t>(keys) : 0;
  }

 private:
  // Whatever lengths the sequences have: the launch is that of the longest.
  bool is_exchanged(double tiles, size_t choice, int num_sms) const {
    const auto parts = static_cast<int64_t>(std::ceil(longest_ / keys_[choice]));
    return exchanges_ && cluster_for(static_cast<int64_t>(tiles), parts, num_sms) > 1;
  }

  static constexpr int kMostEven = 16;
  static constexpr size_t kMost = 31 + kMostEven;

  Costs costs_;
  bool exchanges_;
  double longest_;
  size_t count_ = 0;
  std::array<double, kMost> keys_{}, behind_{};
  double whole_behind_ = 0;
};

// Whether the kernel of the problem's parts can put them together inside a cluster.
bool can_exchange(const AttentionProblem& p, const DeviceSpec& device) {
  if (p.is_quantised() || is_sm100(device.architecture)) return false;
  return sm90::can_exchange_parts(
      traits_of(*find_sm90_part_row(p.head_dim, p.head_dim_v), element_of(p), false));
}

// The plan knows the greatest lengths alone. Where sequences may be shorter it looks at that length
// and at its half, and no part is so long that one which ends last keeps the others waiting.
int64_t choose_part_keys(const AttentionProblem& p, int tile_rows, const DeviceSpec& device) {
  const bool lengths_differ = p.has_seqused_k || p.layout_kv == Layout::kPacked;
  const int64_t longest = keys_of_tile(p, tile_rows);
  const int num_sms = device.num_sms;
  const auto tiles = static_cast<double>(tiles_of(p, tile_rows));
  const bool exchanges = can_exchange(p, device);
  Choices choices(longest, lengths_differ ? kLongestPart : longest,
                  p.is_quantised()                ? kCostsOfBytes
                  : exchanges && p.head_dim <= 64 ? kHopperCostsOf64
                  : exchanges                     ? kHopperCosts
                                                  : kCosts,
                  exchanges);
  choices.compare(tiles, static_cast<double>(longest), num_sms);
  if (lengths_differ) choices.compare(tiles, static_cast<double>(longest) / 2, num_sms);
  const int64_t keys = choices.least_behind();
  return keys == 0 && lengths_differ && longest > kLongestPart ? kLongestPart : keys;
}

// A CTA counts each tile's parts from the first that any row of the sequence sees to the last.
bool are_countable(const AttentionProblem& p, int tile_rows, int64_t part_keys) {
  const int64_t parts = std::max<int64_t>(1, ceil_div(p.seqlen_k, part_keys));
  return p.batch * p.seqlen_q * p.heads_q < kMost && tiles_of(p, tile_rows) < kMost / parts;
}

// The second kernel alone writes an out that is not of the inputs' type.
bool needs_parts(const AttentionProblem& p) { return p.out_dtype != p.dtype; }

// 0: keys are not cut.
int64_t part_keys_of(const AttentionProblem& p, const DeviceSpec& device) {
  const int tile_rows = part_tile_rows(p, device);
  const int64_t all = std::max(kSplitStep, round_up(p.seqlen_k, kSplitStep));
  if (p.split_keys > 0) return std::min(p.split_keys, all);
  if (p.num_splits > 1) return round_up(ceil_div(all, p.num_splits), kSplitStep);
  const bool may_choose = p.num_splits == 0 && rows_of_key_head(p) <= tile_rows;
  const int64_t keys =
      may_choose && p.seqlen_k >= kFewestKeys ? choose_part_keys(p, tile_rows, device) : 0;
  if (keys > 0 && are_countable(p, tile_rows, keys)) return keys;
  return needs_parts(p) ? all : 0;
}

}  // namespace

int part_tile_rows(const AttentionProblem& p, const DeviceSpec& device) {
  if (p.is_quantised()) return e4m3_tile_rows(p);
  return is_sm100(device.architecture) ? sm100::kTileRows : sm90::kWarpgroupRows;
}

Support query_key_parts(const AttentionProblem& p, const DeviceSpec& device) {
  if (p.split_keys == 0 && p.num_splits <= 1 && !needs_parts(p)) return {};
  const int tile_rows = part_tile_rows(p, device);
  if (are_countable(p, tile_rows, part_keys_of(p, device))) return {};
  return {false, fmt::format("{} {} with batch {}, heads_q {}, seqlen_q {} and seqlen_k {}; "
                             "accepted on a GPU: below 2^31 - 2^20 rows of a head, and as many "
                             "parts of tiles of {} rows",
                             p.split_keys > 0   ? "split_keys"
                             : p.num_splits > 1 ? "num_splits"
                                                : "out_dtype f32, splits",
                             p.split_keys > 0 ? p.split_keys : p.num_splits, p.batch, p.heads_q,
                             p.seqlen_q, p.seqlen_k, tile_rows)};
}

KeyParts choose_key_parts(const AttentionProblem& p, const DeviceSpec& device) {
  const int64_t keys = part_keys_of(p, device);
  if (keys == 0) return {};
  const int tile_rows = part_tile_rows(p, device);
  const int64_t most = most_parts(p, tile_rows, keys);
  const bool has_tiles = p.batch > 0 && p.seqlen_q > 0;
  return {.keys = static_cast<int>(keys),
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
  return {"splits", fmt::format("{} keys, at most {} parts of a row", parts.keys, parts.most),
          fmt::format("{}; {} a row's parts together in their order", why,
                      parts.cluster > 1 ? "the CTAs of a cluster put" : "a second kernel puts")};
}

}  // namespace fa4::internal
