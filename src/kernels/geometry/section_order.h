// In which order the work tiles of a batch come. Host and device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

struct HeadAndBlock {
  int head;
  int block;
};

// Which head, and which of its `blocks` blocks of rows, is the `index`th work tile. Heads form
// sections whose keys and values fit the L2 cache together; a section's tiles take all its heads'
// first blocks, then all their second ones. Longest first: the last rows of a causal mask see most
// keys, so that they come first and the short tiles fill the end. Sections differ by one head at
// most, the larger ones first: a small section at the end would start long tiles last.
//
// 7 heads of 2 blocks, 3 sections, longest first:
//   index  0 1 2  3 4 5 | 6 7  8 9 | 10 11  12 13
//   head   0 1 2  0 1 2 | 3 4  3 4 |  5  6   5  6
//   block  1 1 1  0 0 0 | 1 1  0 0 |  1  1   0  0
constexpr HeadAndBlock section_order(uint32_t index, uint32_t heads, uint32_t blocks,
                                     uint32_t sections, bool longest_first) {
  const uint32_t small = heads / sections;  // heads of a small section; large ones have one
  const uint32_t large_sections = heads % sections;  // more
  const uint32_t large_tiles = large_sections * (small + 1) * blocks;
  const bool is_large = index < large_tiles;
  const uint32_t section_heads = is_large ? small + 1 : small;
  // Among the sections of this size.
  const uint32_t tile = is_large ? index : index - large_tiles;
  const uint32_t section = tile / (section_heads * blocks);
  const uint32_t tile_of_section = tile - section * section_heads * blocks;
  const uint32_t first_head =
      (is_large ? 0 : large_sections * (small + 1)) + section * section_heads;
  const uint32_t round = tile_of_section / section_heads;  // through the section's heads
  return {static_cast<int>(first_head + tile_of_section - round * section_heads),
          static_cast<int>(longest_first ? blocks - 1 - round : round)};
}

}  // namespace fa4
