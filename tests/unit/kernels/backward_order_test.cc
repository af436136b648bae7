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

BwdOrder order_of(int heads_down, bool last_keys_first, int sections) {
  return {.sections = sections,
          .last_keys_first = last_keys_first,
          .heads_down = heads_down,
          .pair_sections = sections,
          .first_stores = 1,
          .heads_together = 0,
          .finish_behind = 0};
}

using Works = std::vector<std::tuple<int, int, int>>;  // sequence, head, block

Works works_of(const BwdOrder& order, uint32_t batch, uint32_t heads, uint32_t blocks) {
  Works works;
  for (uint32_t i = 0; i < batch * heads * blocks; ++i) {
    const BlockOfKeys at = block_of_keys(order, i, batch, heads, blocks);
    works.emplace_back(at.batch, at.head, at.block);
  }
  return works;
}

// The second of three heads has nobody beside it.
TEST(BackwardOrder, AHeadThatGoesDownFollowsOneThatGoesUp) {
  const Works expected = {{0, 1, 1}, {0, 1, 0}, {1, 1, 1}, {1, 1, 0}, {0, 0, 1}, {0, 0, 0},
                          {0, 2, 0}, {0, 2, 1}, {1, 0, 1}, {1, 0, 0}, {1, 2, 0}, {1, 2, 1}};
  EXPECT_EQ(works_of(order_of(1, true, 2), 2, 3, 2), expected);
}

TEST(BackwardOrder, ASectionOfPairsHasThoseThatGoUpFirst) {
  const Works expected = {{0, 0, 1}, {0, 1, 1}, {0, 0, 0}, {0, 1, 0},
                          {0, 2, 0}, {0, 3, 0}, {0, 2, 1}, {0, 3, 1}};
  EXPECT_EQ(works_of(order_of(2, true, 1), 1, 4, 2), expected);
}

TEST(BackwardOrder, AllHeadsGoDown) {
  const Works expected = {{0, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 1, 1}};
  EXPECT_EQ(works_of(order_of(2, false, 1), 1, 2, 2), expected);
}

TEST(BackwardOrder, EveryBlockOfKeysComesOnce) {
  for (const int heads : {5, 6}) {
    for (int down = 0; down <= heads; ++down) {
      for (const int sections : {1, 3, 4}) {
        const Works works = works_of(order_of(down, down % 2 != 0, sections), 4, heads, 7);
        const std::set<std::tuple<int, int, int>> once(works.begin(), works.end());
        EXPECT_EQ(once.size(), works.size());
        EXPECT_EQ(*once.begin(), (std::tuple{0, 0, 0}));
        EXPECT_EQ(*once.rbegin(), (std::tuple{3, heads - 1, 6}));
      }
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

struct Blocks {
  int keys, rows;
};

// Who waits for those before him in a block of queries waits for works that come sooner alone, and
// of the blocks of keys that visit one each has a turn of its own, from 0 on.
void expect_turns(const BwdOrder& order, const Blocks& size, int seqlen_q, int seqlen_k, int left,
                  int right) {
  constexpr int kHeads = 5;
  const auto blocks = static_cast<uint32_t>((seqlen_k + size.keys - 1) / size.keys);
  std::map<std::pair<int, int>, int> turns;  // taken, of a head's block of queries
  for (uint32_t i = 0; i < kHeads * blocks; ++i) {
    const BlockOfKeys at = block_of_keys(order, i, 1, kHeads, blocks);
    const bool last_first = order.last_keys_first != 0 && !goes_down(order, at.head, kHeads);
    const int first = at.block * size.keys;
    const auto bounds = [&](int key) { return query_bounds(key, seqlen_q, seqlen_k, left, right); };
    const BlockRange rows =
        block_range(bounds(first), bounds(std::min(first + size.keys, seqlen_k) - 1), size.rows);
    for (int m = rows.n_block_min; m < rows.n_block_max; ++m) {
      const int turn = turn_of_block(at.block, m * size.rows, (m + 1) * size.rows, seqlen_q,
                                     seqlen_k, left, right, size.keys, last_first);
      EXPECT_EQ(turn, (turns[{at.head, m}]++))
          << "head " << at.head << ", block " << m << " of queries, " << at.block << " of keys";
    }
  }
}

TEST(BackwardOrder, WorksWaitForSoonerOnesAlone) {
  constexpr int kAll = 1 << 28;
  const std::pair<int, int> lengths[] = {{700, 700}, {300, 900}, {900, 300}, {64, 1000}};
  const std::pair<int, int> bounded_right[] = {{kAll, 0},  {200, 0},   {100, 150},
                                               {200, -30}, {-20, 150}, {3, -5}};
  for (const Blocks& size : {Blocks{128, 64}, {128, 128}, {256, 64}}) {
    for (const auto& [q, k] : lengths) {
      for (const auto& [left, right] : bounded_right) {
        for (const int down : {0, 1, 2}) {
          expect_turns(order_of(down, true, 2), size, q, k, left, right);
        }
        // Where the first one alone is waited for.
        expect_turns(order_of(5, false, 2), size, q, k, left, right);
      }
      for (const int left : {kAll, 100, -20}) {
        expect_turns(order_of(0, false, 2), size, q, k, left, kAll);
      }
    }
  }
}

}  // namespace
}  // namespace fa4
