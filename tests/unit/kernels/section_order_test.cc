// The order of work tiles, as the tile scheduler asks for it.
#include "kernels/geometry/section_order.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace fa4 {
namespace {

std::vector<std::pair<int, int>> order(uint32_t heads, uint32_t blocks, uint32_t sections,
                                       bool longest_first) {
  std::vector<std::pair<int, int>> tiles;
  for (uint32_t i = 0; i < heads * blocks; ++i) {
    const auto [head, block] = section_order(i, heads, blocks, sections, longest_first);
    tiles.emplace_back(head, block);
  }
  return tiles;
}

TEST(SectionOrder, TheExampleOfTheHeader) {
  const std::vector<std::pair<int, int>> expected = {{0, 1}, {1, 1}, {2, 1}, {0, 0}, {1, 0},
                                                     {2, 0}, {3, 1}, {4, 1}, {3, 0}, {4, 0},
                                                     {5, 1}, {6, 1}, {5, 0}, {6, 0}};
  EXPECT_EQ(order(7, 2, 3, true), expected);
}

TEST(SectionOrder, EveryTileComesOnce) {
  for (uint32_t heads = 1; heads <= 9; ++heads) {
    for (uint32_t blocks = 1; blocks <= 4; ++blocks) {
      for (uint32_t sections = 1; sections <= heads; ++sections) {
        for (const bool longest_first : {false, true}) {
          const auto tiles = order(heads, blocks, sections, longest_first);
          const std::set<std::pair<int, int>> once(tiles.begin(), tiles.end());
          EXPECT_EQ(once.size(), heads * blocks);
          EXPECT_EQ(once.begin()->first, 0);
          EXPECT_EQ(once.rbegin()->first, static_cast<int>(heads) - 1);
        }
      }
    }
  }
}

TEST(SectionOrder, ATilesSectionIsOneOfTheSections) {
  for (uint32_t heads = 1; heads <= 9; ++heads) {
    for (uint32_t sections = 1; sections <= heads; ++sections) {
      for (uint32_t i = 0; i < heads * 3; ++i) {
        const Section of = section_of_tile(i, heads, 3, sections);
        const Section same = section_at(of.number, heads, sections);
        EXPECT_LT(of.number, sections);
        EXPECT_EQ(of.first_head, same.first_head);
        EXPECT_EQ(of.heads, same.heads);
        EXPECT_LE(of.first_head * 3, i);
        EXPECT_LT(i, (of.first_head + of.heads) * 3);
      }
    }
  }
}

// A section's tiles are together: as many sections as asked for, each with a head more or less.
TEST(SectionOrder, SectionsFollowEachOtherAndAreEvenlyLarge) {
  for (uint32_t heads = 1; heads <= 9; ++heads) {
    for (uint32_t sections = 1; sections <= heads; ++sections) {
      std::vector<size_t> sizes;
      std::set<int> section;
      int next_head = 0;
      for (const auto& [head, block] : order(heads, 3, sections, false)) {
        if (block == 0 && head == next_head) {  // a head's first tile
          section.insert(head);
          ++next_head;
        } else if (block == 2 && section.contains(head) && head == *section.rbegin()) {
          sizes.push_back(section.size());  // and its last head's last tile
          section.clear();
        }
      }
      ASSERT_EQ(sizes.size(), sections) << heads;
      for (size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(sizes[i], heads / sections + (i < heads % sections ? 1 : 0));
      }
    }
  }
}

TEST(SectionOrder, LongestFirstTurnsTheBlocksOfASectionRound) {
  const auto shortest = order(5, 4, 2, false), longest = order(5, 4, 2, true);
  for (size_t i = 0; i < shortest.size(); ++i) {
    EXPECT_EQ(longest[i], std::pair(shortest[i].first, 3 - shortest[i].second)) << i;
  }
}

}  // namespace
}  // namespace fa4
