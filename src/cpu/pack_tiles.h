// Rows of bf16 in tiles, and the columns of those rows (layout: tile_places.h).
#pragma once

#include <cstdint>

namespace fa4::internal {

// One packed row of `width` elements, a multiple of 32, into its place in tiles.
void store_in_tiles(const uint16_t* packed_row, int64_t width, int64_t row, uint16_t* tiles);

// `rows` rows in tiles, a multiple of 32, transposed: `width` rows of `tile_m` elements in tiles,
// of which the first `rows` are written. True when a value is not finite: it becomes 0.
bool pack_columns(const uint16_t* row_tiles, int64_t rows, int64_t width, int64_t tile_m,
                  uint16_t* column_tiles);

}  // namespace fa4::internal
