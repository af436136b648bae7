#include "plan/key_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/rounding.h"
#include "plan/gpu_plan.h"

namespace fa4::internal {
namespace {

// Indices of parts and of rows are 32 bits wide, also those past the last.
constexpr int64_t kMost = (int64_t{1} << 31) - (int64_t{1} << 20);
// Fewer keys than this are one part's work.
constexpr int64_t kFewestKeys = 257;
// What a part costs beside its keys, in keys: its sums are written and read, and its first products
// wait for their operands.
constexpr double kPartOverhead = 40;

int64_t rows_of_key_head(const AttentionProblem& p) {
  return p.seqlen_q * packed_rows(packable_group(p));
}

// Of all sequences of the greatest lengths.
int64_t tiles_of(const AttentionProblem& p) {
  const int64_t heads = p.heads_q / packable_group(p);
  return std::max<int64_t>(1, p.batch * heads * ceil_div(rows_of_key_head(p), kPartTileRows));
}

// Keys from the first to the last that a tile's rows see, at most.
int64_t keys_of_tile(const AttentionProblem& p) {
  if (!p.mask.is_bounded_left() || !p.mask.is_bounded_right()) return p.seqlen_k;
  const int64_t positions = std::max(1, kPartTileRows / packed_rows(packable_group(p)));
  const int64_t others = std::min(positions, p.seqlen_q) - 1;
  const int64_t window = p.mask.window_left + p.mask.window_right + 1;
  return std::clamp<int64_t>(window + others, 1, std::max<int64_t>(1, p.seqlen_k));
}

// Of `keys`, from wherever on they begin.
int64_t most_parts(const AttentionProblem& p, int64_t part_keys) {
  const int64_t all = std::max<int64_t>(1, ceil_div(p.seqlen_k, part_keys));
  return std::min(all, ceil_div(keys_of_tile(p) - 1, part_keys) + 1);
}

// The time of tiles with `keys` each, in keys of one SM.
double time_of(int64_t tiles, int64_t keys, int64_t part_keys, int num_sms) {
  const int64_t rounds = ceil_div(tiles * ceil_div(keys, part_keys), num_sms);
  return static_cast<double>(rounds) *
         (static_cast<double>(std::min(keys, part_keys)) + kPartOverhead);
}

// The plan knows the greatest length alone. Where sequences may be shorter the choice is the one
// that is least behind the best one for any of the lengths: the greatest, its half, and so on.
int64_t choose_part_keys(const AttentionProblem& p, int num_sms) {
  constexpr int kLengths = 12, kChoices = 24;
  const bool lengths_differ =
      p.has_seqused_k || p.layout_kv != Layout::kDense || p.layout_q == Layout::kPacked;
  const int64_t tiles = tiles_of(p), longest = keys_of_tile(p);
  std::array<double, kChoices> behind{};
  std::array<int64_t, kChoices> choices{};
  int num_choices = 0;
  for (int64_t keys = kSplitStep; num_choices < kChoices; keys += std::max(kSplitStep, keys / 3)) {
    keys = round_up(keys, kSplitStep);
    choices[static_cast<size_t>(num_choices++)] = keys;
    if (keys >= longest) break;
  }
  for (int i = 0; i < (lengths_differ ? kLengths : 1); ++i) {
    const int64_t keys = longest >> i;
    if (i > 0 && keys < kFewestKeys) break;
    std::array<double, kChoices> times{};
    double best = 0;
    for (int c = 0; c < num_choices; ++c) {
      const auto at = static_cast<size_t>(c);
      times[at] = time_of(tiles, keys, choices[at], num_sms);
      best = c == 0 ? times[at] : std::min(best, times[at]);
    }
    for (size_t c = 0; c < static_cast<size_t>(num_choices); ++c) {
      behind[c] = std::max(behind[c], times[c] / best);
    }
  }
  // Of equals the largest.
  size_t chosen = 0;
  for (size_t c = 1; c < static_cast<size_t>(num_choices); ++c) {
    if (behind[c] <= behind[chosen]) chosen = c;
  }
  return choices[chosen];
}

bool are_countable(const AttentionProblem& p, int64_t part_keys) {
  return p.batch * p.seqlen_q * p.heads_q < kMost &&
         tiles_of(p) < kMost / most_parts(p, part_keys);
}

// 0: keys are not cut.
int64_t part_keys_of(const AttentionProblem& p, int num_sms) {
  const int64_t all = std::max(kSplitStep, round_up(p.seqlen_k, kSplitStep));
  if (p.split_keys > 0) return std::min(p.split_keys, all);
  if (p.num_splits > 1) return round_up(ceil_div(all, p.num_splits), kSplitStep);
  if (p.num_splits == 1 || rows_of_key_head(p) > kPartTileRows || p.seqlen_k < kFewestKeys) {
    return 0;
  }
  const int64_t keys = choose_part_keys(p, num_sms);
  return are_countable(p, keys) ? keys : 0;
}

}  // namespace

Support query_key_parts(const AttentionProblem& p) {
  if (p.split_keys == 0 && p.num_splits <= 1) return {};
  const int64_t keys = part_keys_of(p, 1);
  if (are_countable(p, keys)) return {};
  return {false, fmt::format("{} {} with batch {}, heads_q {}, seqlen_q {} and seqlen_k {}; "
                             "accepted on a GPU: below 2^31 - 2^20 rows of a head, and as many "
                             "parts of tiles of 64 rows",
                             p.split_keys > 0 ? "split_keys" : "num_splits",
                             p.split_keys > 0 ? p.split_keys : p.num_splits, p.batch, p.heads_q,
                             p.seqlen_q, p.seqlen_k)};
}

KeyParts choose_key_parts(const AttentionProblem& p, const DeviceSpec& device) {
  const int64_t keys = part_keys_of(p, device.num_sms);
  if (keys == 0) return {};
  return {static_cast<int>(keys), static_cast<int>(most_parts(p, keys))};
}

PlanStep explain_key_parts(const AttentionProblem& p, const KeyParts& parts) {
  if (!parts.are_cut()) {
    const char* why = p.num_splits == 1 ? "num_splits is 1"
                      : rows_of_key_head(p) > kPartTileRows
                          ? "tiles of rows are work for all SMs, and nothing asks for splits"
                          : "few keys";
    return {"splits", "none", why};
  }
  const char* why = p.split_keys > 0   ? "split_keys says so"
                    : p.num_splits > 1 ? "num_splits of the longest sequence"
                                       : "few rows: parts of the keys are work for all SMs";
  return {"splits", fmt::format("{} keys, at most {} parts of a row", parts.keys, parts.most),
          fmt::format("{}; a second kernel puts a row's parts together in their order", why)};
}

}  // namespace fa4::internal
