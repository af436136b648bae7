// How a tile of 16-bit elements lies in shared memory: slabs of 64 (or 32) columns, one after the
// other, rows of 128 (or 64) bytes, their 16-byte pieces swizzled by TMA. Host and device.
#pragma once

namespace fa4 {

constexpr int slab_columns(int columns) { return columns % 64 == 0 ? 64 : 32; }
constexpr int num_slabs(int columns) { return columns / slab_columns(columns); }

// The pieces of a row of a slab are permuted: piece p stands in the place of p ^ slab_swizzle(row).
template <int kSlabColumns>
constexpr int slab_swizzle(int row) {
  return kSlabColumns == 64 ? row & 7 : row / 2 & 3;
}

}  // namespace fa4
