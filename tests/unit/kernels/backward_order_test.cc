// The order of a backward's works, and the turns in which they add to a block of queries.
#include "kernels/backward/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/geometry/query_range.h"

namespace fa4 {
namespace {

constexpr BwdOrder kUp{.sections = 2,
                       .last_keys_first = 1,
                       .heads_down = 1,
                       .sections_down = 1,
                       .first_stores = 1,
                       .heads_together = 0};

TEST(BackwardOrder, HeadsThatGoDownComeBehindAllOthers) {
  std::vector<std::tuple<int, int, int>> works;
  for (uint32_t i = 0; i < 12; ++i) {
    const BlockOfKeys at = block_of_keys(kUp, i, 2, 3, 2);
    works.emplace_back(at.batch, at.head, at.block);
  }
  const std::vector<std::tuple<int, int, int>> expected = {
      {0, 0, 1}, {0, 1, 1}, {0, 0, 0}, {0, 1, 0}, {1, 0, 1}, {1, 1, 1},
      {1, 0, 0}, {1, 1, 0}, {0, 2, 0}, {1, 2, 0}, {0, 2, 1}, {1, 2, 1}};
  EXPECT_EQ(works, expected);
}

TEST(BackwardOrder, EveryBlockOfKeysComesOnce) {
  for (int down = 0; down <= 5; ++down) {
    for (const int sections : {1, 3, 20}) {
      const BwdOrder order{.sections = sections,
                           .last_keys_first = down % 2,
                           .heads_down = down,
                           .sections_down = sections,
                           .first_stores = 1,
                           .heads_together = 0};
      std::set<std::tuple<int, int, int>> once;
      for (uint32_t i = 0; i < 4 * 5 * 7; ++i) {
        const BlockOfKeys at = block_of_keys(order, i, 4, 5, 7);
        once.emplace(at.batch, at.head, at.block);
      }
      EXPECT_EQ(once.size(), 4u * 5 * 7);
      EXPECT_EQ(*once.begin(), (std::tuple{0, 0, 0}));
      EXPECT_EQ(*once.rbegin(), (std::tuple{3, 4, 6}));
    }
  }
}

TEST(BackwardOrder, VisitsGoUpThroughTheSameBlocks) {
  const BlockRange rows{{2, 9}, 4, 7};
  for (const bool down : {false, true}) {
    const BlockRange visits = in_order_of_visits(rows, down);
    std::vector<int> blocks;
    for (int visit = visits.n_block_min; visit < visits.n_block_max; ++visit) {
      const int m = block_of_visit(visit);
      blocks.push_back(m);
      const bool is_whole = visit >= visits.full_begin && visit < visits.full_end;
      EXPECT_EQ(is_whole, m >= rows.full_begin && m < rows.full_end) << m;
    }
    EXPECT_EQ(blocks,
              down ? (std::vector{8, 7, 6, 5, 4, 3, 2}) : (std::vector{2, 3, 4, 5, 6, 7, 8}));
  }
  EXPECT_EQ(block_of_visit(in_order_of_visits({{0, 1}, 0, 0}, true).n_block_min), 0);
}

// Who waits for those before him in a block of queries waits for works that come sooner alone, and
// of the blocks of keys that visit one each has a turn of its own, from 0 on.
TEST(BackwardOrder, WorksWaitForSoonerOnesAlone) {
  constexpr int kKeys = 128, kRows = 64, kHeads = 4;
  const std::pair<int, int> lengths[] = {{700, 700}, {300, 900}, {900, 300}, {64, 1000}};
  for (const auto& [seqlen_q, seqlen_k] : lengths) {
    for (const auto& [left, right] : {std::pair{1 << 28, 0}, {200, 0}, {100, 150}}) {
      const auto blocks = static_cast<uint32_t>((seqlen_k + kKeys - 1) / kKeys);
      std::map<std::pair<int, int>, std::vector<uint32_t>> turns;  // of a head's block of queries
      for (uint32_t i = 0; i < kHeads * blocks; ++i) {
        const BlockOfKeys at = block_of_keys(kUp, i, 1, kHeads, blocks);
        const bool down = goes_down(kUp, at.head, kHeads);
        const int first = at.block * kKeys;
        const auto bounds = [&](int key) {
          return query_bounds(key, seqlen_q, seqlen_k, left, right);
        };
        const BlockRange rows =
            block_range(bounds(first), bounds(std::min(first + kKeys, seqlen_k) - 1), kRows);
        for (int m = rows.n_block_min; m < rows.n_block_max; ++m) {
          const int turn = turn_of_block(at.block, m * kRows, (m + 1) * kRows, seqlen_q, seqlen_k,
                                         left, right, kKeys, !down);
          auto& taken = turns[{at.head, m}];
          EXPECT_EQ(turn, static_cast<int>(taken.size()))
              << "head " << at.head << ", block " << m << " of queries, " << at.block << " of keys";
          taken.push_back(i);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa4
