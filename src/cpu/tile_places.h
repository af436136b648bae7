// Where the AMX path's backward keeps its operands: each tile is one KB in a row, so that a tile is
// sixteen whole lines next to each other and never shares a set of L1 with itself.
#pragma once

#include <cstdint>

namespace fa4::internal {

inline constexpr int kTileSide = 32;  // rows, and elements of bf16, of two tiles below each other

// Element (row, column) of rows that are `width` elements wide: 32 x 32 after 32 x 32, along the
// width first.
constexpr int64_t place_in_tiles(int64_t row, int64_t column, int64_t width) {
  return row / 32 * 32 * width + column / 32 * 1024 + row % 32 * 32 + column % 32;
}

// A key among 32: the tile, 0 or 1, and the place in a row of it. Words of two rows, interleaved
// within each 128 bits, leave keys in this order (Path::store_pairs).
struct PlaceOfKey {
  int tile, column;
};
constexpr PlaceOfKey place_of_key(int64_t key) {
  return {static_cast<int>(key / 4 % 2), static_cast<int>(key % 32 / 8 * 4 + key % 4)};
}

// The pair of the even and odd row of `row` at `key`, among those of 32 keys: two tiles for every
// 32 rows.
constexpr int64_t place_of_pair(int64_t row, int64_t key) {
  const PlaceOfKey place = place_of_key(key);
  return row / 32 * 512 + place.tile * 256 + row % 32 / 2 * 16 + place.column;
}

// The sum of `key` and one of `columns`, transposed: columns x 32 keys, the next 32 keys behind
// them.
constexpr int64_t place_of_sum(int64_t key, int64_t column, int64_t columns) {
  const PlaceOfKey place = place_of_key(key);
  return (key / 32 * columns + column) * 32 + place.tile * 16 + place.column;
}

}  // namespace fa4::internal
