// In which order the work tiles of a batch come. Host and device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

struct HeadAndBlock {
  int head;
  int block;
};

// Heads that share the L2 cache, or some part of it.
struct Section {
  uint32_t number;
  uint32_t first_head;
  uint32_t heads;
};

// The number-th of the `sections` into which heads are cut. They differ by one head at most, the
// larger ones first: a small section at the end would start long tiles last.
constexpr Section section_at(uint32_t number, uint32_t heads, uint32_t sections) {
  const uint32_t small = heads / sections, large_sections = heads % sections;
  const bool is_large = number < large_sections;
  return {number, number * small + (is_large ? number : large_sections),
          is_large ? small + 1 : small};
}

// Which one the `index`th work tile is of, where each head has `blocks`.
constexpr Section section_of_tile(uint32_t index, uint32_t heads, uint32_t blocks,
                                  uint32_t sections) {
  const uint32_t small = heads / sections;  // heads of a small section; a large one has one more
  const uint32_t large_sections = heads % sections;
  const uint32_t large_tiles = large_sections * (small + 1) * blocks;
  const bool is_large = index < large_tiles;
  const uint32_t section_heads = is_large ? small + 1 : small;
  // Among the sections of this size.
  const uint32_t tile = is_large ? index : index - large_tiles;
  const uint32_t section = tile / (section_heads * blocks);
  return {(is_large ? 0 : large_sections) + section,
          (is_large ? 0 : large_sections * (small + 1)) + section * section_heads, section_heads};
}

// Which head, and which of its `blocks` blocks of rows, is work tile `index`, which lies in section
// `of`. Heads form sections whose keys and values fit the L2 cache together; a section's tiles take
// all its heads' first blocks, then all their second ones. Longest first: the last rows of a causal
// mask see most keys, so that they come first and the short tiles fill the end.
//
// 7 heads of 2 blocks, 3 sections, longest first:
//   index  0 1 2  3 4 5 | 6 7  8 9 | 10 11  12 13
//   head   0 1 2  0 1 2 | 3 4  3 4 |  5  6   5  6
//   block  1 1 1  0 0 0 | 1 1  0 0 |  1  1   0  0
constexpr HeadAndBlock tile_of_section(const Section& of, uint32_t index, uint32_t blocks,
                                       bool longest_first) {
  const uint32_t tile = index - of.first_head * blocks;
  const uint32_t round = tile / of.heads;  // through the section's heads
  return {static_cast<int>(of.first_head + tile - round * of.heads),
          static_cast<int>(longest_first ? blocks - 1 - round : round)};
}
constexpr HeadAndBlock section_order(uint32_t index, uint32_t heads, uint32_t blocks,
                                     uint32_t sections, bool longest_first) {
  return tile_of_section(section_of_tile(index, heads, blocks, sections), index, blocks,
                         longest_first);
}

}  // namespace fa4
