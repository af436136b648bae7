#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "problem/attention_problem.h"

namespace fa4::internal {
namespace {

// Straight from the definition: key j is seen from position p when p - left <= j <= p + right.
bool sees(int64_t i, int64_t j, int64_t seqlen_q, int64_t seqlen_k, const MaskSpec& mask) {
  const int64_t position = i + seqlen_k - seqlen_q;
  return (!mask.is_bounded_left() || j >= position - mask.window_left) &&
         (!mask.is_bounded_right() || j <= position + mask.window_right);
}

// Windows of up to 9 keys to either side, unbounded, and bounds of either sign.
std::vector<MaskSpec> all_masks() {
  std::vector<MaskSpec> masks;
  for (int32_t bounds = 0; bounds <= 3; ++bounds) {
    for (int64_t left = (bounds & 1) != 0 ? -9 : -1; left <= 9; ++left) {
      for (int64_t right = (bounds & 2) != 0 ? -9 : -1; right <= 9; ++right) {
        masks.push_back({left, right, bounds});
      }
    }
  }
  return masks;
}

TEST(Mask, KeysAndPairsAreThoseOfTheDefinition) {
  for (int64_t seqlen_q = 0; seqlen_q <= 7; ++seqlen_q) {
    for (int64_t seqlen_k = 0; seqlen_k <= 7; ++seqlen_k) {
      for (const MaskSpec& mask : all_masks()) {
        const int64_t left = mask.window_left, right = mask.window_right;
        {
          int64_t pairs = 0;
          for (int64_t i = 0; i < seqlen_q; ++i) {
            const KeyRange range = visible_keys(i, seqlen_q, seqlen_k, mask);
            for (int64_t j = 0; j < seqlen_k; ++j) {
              const bool seen = sees(i, j, seqlen_q, seqlen_k, mask);
              ASSERT_EQ(j >= range.begin && j < range.end, seen)
                  << "i " << i << " j " << j << " of " << seqlen_q << " x " << seqlen_k
                  << " window " << left << ", " << right;
              pairs += seen ? 1 : 0;
            }
          }
          ASSERT_EQ(visible_pairs(seqlen_q, seqlen_k, mask), pairs)
              << seqlen_q << " x " << seqlen_k << " window " << left << ", " << right;
        }
      }
    }
  }
}

TEST(Mask, LargeNumbersDoNotOverflow) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t n = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(visible_pairs(n, n, {-1, 0}), n * (n + 1) / 2);
  EXPECT_EQ(visible_pairs(n, n, {most, most}), n * n);
  const KeyRange range = visible_keys(0, n, n, {most, most});
  EXPECT_EQ(range.begin, 0);
  EXPECT_EQ(range.end, n);
  const int64_t least = std::numeric_limits<int64_t>::min();
  for (const MaskSpec& mask : {MaskSpec{least, -1, 1}, {-1, least, 2}, {least, least, 3}}) {
    EXPECT_EQ(visible_pairs(n, n, mask), 0);
    const KeyRange none = visible_keys(n / 2, n, n, mask);
    EXPECT_GE(none.begin, none.end);
  }
}

TEST(Mask, AKeyIsSeenByThoseThatSeeIt) {
  for (const auto& [seqlen_q, seqlen_k] :
       {std::pair<int64_t, int64_t>{5, 5}, {4, 9}, {9, 4}, {1, 7}, {7, 1}, {3, 0}}) {
    for (const MaskSpec& mask : all_masks()) {
      for (int64_t j = 0; j < seqlen_k; ++j) {
        const QueryRange seen_by = visible_queries(j, seqlen_q, seqlen_k, mask);
        for (int64_t i = 0; i < seqlen_q; ++i) {
          const KeyRange sees = visible_keys(i, seqlen_q, seqlen_k, mask);
          EXPECT_EQ(i >= seen_by.begin && i < seen_by.end, j >= sees.begin && j < sees.end)
              << i << ", " << j << " of " << seqlen_q << " x " << seqlen_k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
