// Which blocks tiles visit, against the mask pair by pair: windows with bounds of either sign.
#include "kernels/geometry/block_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/geometry/query_range.h"

namespace fa4 {
namespace {

constexpr int kUnbounded = (1 << 30) - 1;
constexpr int kRows = 4, kKeys = 3;  // of a tile, of a block

struct Shape {
  int seqlen_q, seqlen_k, left, right;

  bool sees(int row, int key) const {
    const int position = row + seqlen_k - seqlen_q;
    return key >= position - left && key <= position + right;
  }
  KeyBounds keys_of(int row) const {
    return key_bounds(row + seqlen_k - seqlen_q, seqlen_k, left, right);
  }
  QueryBounds rows_of(int key) const { return query_bounds(key, seqlen_q, seqlen_k, left, right); }
  // As sm90::block_range_of and rows_of_keys have them.
  BlockRange keys_of_tile(int m) const {
    const int last = std::min((m + 1) * kRows, seqlen_q) - 1;
    return block_range(keys_of(m * kRows), keys_of(last), kKeys);
  }
  BlockRange rows_of_block(int n) const {
    const int last = std::min((n + 1) * kKeys, seqlen_k) - 1;
    return block_range(rows_of(n * kKeys), rows_of(last), kRows);
  }
};

// Every window that a problem's canonical mask may be: its two bounds in order.
template <class Check>
void for_every_shape(const Check& check) {
  std::vector<int> bounds = {kUnbounded};
  for (int bound = -9; bound <= 9; ++bound) bounds.push_back(bound);
  for (int seqlen_q = 1; seqlen_q <= 9; ++seqlen_q) {
    for (int seqlen_k = 1; seqlen_k <= 10; ++seqlen_k) {
      for (const int left : bounds) {
        for (const int right : bounds) {
          if (int64_t{left} + right < 0) continue;
          SCOPED_TRACE(testing::Message()
                       << seqlen_q << " x " << seqlen_k << " window " << left << ", " << right);
          check(Shape{seqlen_q, seqlen_k, left, right});
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(BlockRange, HoldsTheKeysThatRowsSeeAndMasksWhatSomeDoNot) {
  for_every_shape([](const Shape& s) {
    for (int row = 0; row < s.seqlen_q; ++row) {
      const BlockRange blocks = s.keys_of_tile(row / kRows);
      const KeyBounds bounds = s.keys_of(row);
      for (int key = 0; key < s.seqlen_k; ++key) {
        const int n = key / kKeys;
        EXPECT_EQ(s.sees(row, key), key >= bounds.begin && key < bounds.end) << row << ", " << key;
        if (s.sees(row, key)) {
          EXPECT_TRUE(blocks.contains(n)) << row << ", " << key;
        } else {
          EXPECT_FALSE(blocks.contains(n) && n >= blocks.full_begin && n < blocks.full_end)
              << row << ", " << key;
        }
      }
    }
  });
}

TEST(BlockRange, HoldsTheRowsThatSeeKeys) {
  for_every_shape([](const Shape& s) {
    for (int key = 0; key < s.seqlen_k; ++key) {
      const BlockRange blocks = s.rows_of_block(key / kKeys);
      for (int row = 0; row < s.seqlen_q; ++row) {
        const int m = row / kRows;
        if (s.sees(row, key)) {
          EXPECT_TRUE(blocks.contains(m)) << row << ", " << key;
        } else {
          EXPECT_FALSE(blocks.contains(m) && m >= blocks.full_begin && m < blocks.full_end)
              << row << ", " << key;
        }
      }
    }
  });
}

TEST(BlockRange, TilesBesideEachOtherLeaveNoGap) {
  for_every_shape([](const Shape& s) {
    for (int m = 1; m * kRows < s.seqlen_q; ++m) {
      const BlockRange a = s.keys_of_tile(m - 1), b = s.keys_of_tile(m);
      if (!a.is_empty() && !b.is_empty()) {
        EXPECT_LE(b.n_block_min, a.n_block_max);
      }
    }
  });
}

// Deterministic backwards wait for as many as come before them: a number that nobody has would
// hang, and one that two have would add in any order.
TEST(TurnOfBlock, CountsTheBlocksOfKeysThatVisitRowsFromEitherEnd) {
  for_every_shape([](const Shape& s) {
    for (int m = 0; m * kRows < s.seqlen_q; ++m) {
      const auto turn = [&](int n, bool last_first) {
        return turn_of_block(n, m * kRows, (m + 1) * kRows, s.seqlen_q, s.seqlen_k, s.left, s.right,
                             kKeys, last_first);
      };
      std::vector<int> visitors;
      for (int n = 0; n * kKeys < s.seqlen_k; ++n) {
        if (s.rows_of_block(n).contains(m)) visitors.push_back(n);
      }
      const int count = static_cast<int>(visitors.size());
      for (int i = 0; i < count; ++i) {
        EXPECT_EQ(turn(visitors[i], false), i) << "rows " << m * kRows;
        EXPECT_EQ(turn(visitors[i], true), count - 1 - i) << "rows " << m * kRows;
      }
    }
  });
}

TEST(BlockRange, MatchesTheRowsOneByOne) {
  for (const int seqlen_q : {1, 5, 64, 200}) {
    for (const int seqlen_k : {1, 63, 64, 130}) {
      for (const int left : {0, 10, (1 << 30) - 1}) {
        for (const int right : {0, 33, (1 << 30) - 1}) {
          const int tile_m = 64, tile_n = 48;
          for (int m = 0; m * tile_m < seqlen_q; ++m) {
            const int last_row = std::min(m * tile_m + tile_m, seqlen_q) - 1;
            const auto bounds = [&](int row) {
              return key_bounds(row + seqlen_k - seqlen_q, seqlen_k, left, right);
            };
            const BlockRange r = block_range(bounds(m * tile_m), bounds(last_row), tile_n);
            for (int n = 0; n * tile_n < seqlen_k; ++n) {
              int seen = 0, rows = 0, keys = 0;
              for (int row = m * tile_m; row <= last_row; ++row, ++rows) {
                const KeyBounds b = bounds(row);
                for (int key = n * tile_n; key < (n + 1) * tile_n; ++key) {
                  seen += key >= b.begin && key < b.end;
                  keys += 1;
                }
              }
              const bool visited = n >= r.n_block_min && n < r.n_block_max;
              if (seen > 0) {
                EXPECT_TRUE(visited) << seqlen_q << " " << seqlen_k << " " << m << " " << n;
              }
              const bool unmasked = visited && n >= r.full_begin && n < r.full_end;
              if (unmasked) {
                EXPECT_EQ(seen, keys) << "block " << n << " of tile " << m;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa4
