#include "cpu/pack_tiles.h"

#include <emmintrin.h>

#include <algorithm>

#include "cpu/tile_places.h"

namespace fa4::internal {
namespace {

// 8 x 8 elements of tiles.
void transpose_eight(const uint16_t* from, uint16_t* to) {
  __m128i row[8], next[8];
  for (int i = 0; i < 8; ++i) {
    row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * kTileSide));
  }
  // Each step interleaves registers i and i + 4, which turns the six bits of an element's number,
  // row before column, by one place; three steps exchange row and column.
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = _mm_unpacklo_epi16(row[i], row[i + 4]);
      next[2 * i + 1] = _mm_unpackhi_epi16(row[i], row[i + 4]);
    }
    std::copy_n(next, 8, row);
  }
  for (int i = 0; i < 8; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * kTileSide), row[i]);
  }
}

void transpose(const uint16_t* from, uint16_t* to) {
  for (int i = 0; i < kTileSide; i += 8) {
    for (int j = 0; j < kTileSide; j += 8) {
      transpose_eight(from + i * kTileSide + j, to + j * kTileSide + i);
    }
  }
}

// What is not finite becomes 0; true when there was any.
bool clear_nonfinite(uint16_t* tile) {
  uint16_t any = 0;
  for (int i = 0; i < kTileSide * kTileSide; ++i) {
    const bool bad = (tile[i] & 0x7f80u) == 0x7f80u;
    any |= static_cast<uint16_t>(bad);
    tile[i] = bad ? uint16_t{0} : tile[i];
  }
  return any != 0;
}

}  // namespace

void store_in_tiles(const uint16_t* packed_row, int64_t width, int64_t row, uint16_t* tiles) {
  for (int64_t d = 0; d < width; d += kTileSide) {
    std::copy_n(packed_row + d, kTileSide, tiles + place_in_tiles(row, d, width));
  }
}

bool pack_columns(const uint16_t* row_tiles, int64_t rows, int64_t width, int64_t tile_m,
                  uint16_t* column_tiles) {
  bool nonfinite = false;
  for (int64_t r = 0; r < rows; r += kTileSide) {
    for (int64_t d = 0; d < width; d += kTileSide) {
      uint16_t* to = column_tiles + place_in_tiles(d, r, tile_m);
      transpose(row_tiles + place_in_tiles(r, d, width), to);
      nonfinite |= clear_nonfinite(to);
    }
  }
  return nonfinite;
}

}  // namespace fa4::internal
