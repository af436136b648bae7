// How a tile of 16-bit elements lies in shared memory: slabs of 64 (or 32) columns, one after the
// other, rows of 128 (or 64) bytes, their 16-byte pieces swizzled by TMA. Host and device.
#pragma once

namespace fa4 {

constexpr int slab_columns(int columns) { return columns % 64 == 0 ? 64 : 32; }
constexpr int num_slabs(int columns) { return columns / slab_columns(columns); }

// Rows after which the pattern of pieces repeats.
inline constexpr int kGroupRows = 8;

// Bytes between the slabs of a tile, and between its groups of 8 rows.
struct TileLayout {
  int slab_bytes;
  int group_bytes;

  constexpr bool operator==(const TileLayout&) const = default;
};
constexpr int group_bytes(int slab_columns) { return kGroupRows * 2 * slab_columns; }
// One slab after the other.
constexpr TileLayout slab_by_slab(int rows, int slab_columns) {
  return {rows * 2 * slab_columns, group_bytes(slab_columns)};
}
// One group after the other, all slabs of each.
constexpr TileLayout group_by_group(int slabs, int slab_columns) {
  return {group_bytes(slab_columns), slabs * group_bytes(slab_columns)};
}

// The pieces of a row of a slab are permuted: piece p stands in the place of p ^ slab_swizzle(row).
template <int kSlabColumns>
constexpr int slab_swizzle(int row) {
  return kSlabColumns == 64 ? row & 7 : row / 2 & 3;
}

}  // namespace fa4
