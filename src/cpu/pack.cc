#include "cpu/pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace fa4::internal {
namespace {

// Without branches, so that the compiler works on many at once.
uint32_t f16_to_float_bits(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<uint32_t>(scaled) | special | static_cast<uint32_t>(half & 0x8000u) << 16;
}

// Every e4m3 as a unit's element: float bits, or bf16, which holds it exactly.
template <class T>
std::array<T, 256> e4m3_table() {
  std::array<T, 256> table;
  for (int i = 0; i < 256; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(e4m3_to_float(static_cast<uint8_t>(i)));
    table[static_cast<size_t>(i)] = static_cast<T>(sizeof(T) == 2 ? bits >> 16 : bits);
  }
  return table;
}
const std::array<uint32_t, 256> kFloatsOfE4M3 = e4m3_table<uint32_t>();
const std::array<uint16_t, 256> kBf16OfE4M3 = e4m3_table<uint16_t>();

// `dim` elements as float bits.
void to_floats(DType dtype, const void* data, int64_t offset, int64_t dim, uint32_t* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, static_cast<const float*>(data) + offset, static_cast<size_t>(dim) * 4);
    return;
  }
  if (dtype == DType::kE4M3) {
    const uint8_t* from = static_cast<const uint8_t*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = kFloatsOfE4M3[from[d]];
    return;
  }
  const uint16_t* from = static_cast<const uint16_t*>(data) + offset;
  if (dtype == DType::kBF16) {
    for (int64_t d = 0; d < dim; ++d) to[d] = static_cast<uint32_t>(from[d]) << 16;
  } else {
    for (int64_t d = 0; d < dim; ++d) to[d] = f16_to_float_bits(from[d]);
  }
}

// One row's units, zeros behind `dim`.
void row_units(DType dtype, const void* data, int64_t offset, int64_t dim, int64_t padded, int pair,
               uint32_t* units) {
  if (pair == 2 && dtype == DType::kE4M3) {
    const uint8_t* from = static_cast<const uint8_t*>(data) + offset;
    for (int64_t d = 0; d < dim; d += 2) {
      units[d / 2] = kBf16OfE4M3[from[d]] | static_cast<uint32_t>(kBf16OfE4M3[from[d + 1]]) << 16;
    }
  } else if (pair == 2) {
    std::memcpy(units, static_cast<const uint16_t*>(data) + offset, static_cast<size_t>(dim) * 2);
  } else {
    to_floats(dtype, data, offset, dim, units);
  }
  std::fill(units + dim / pair, units + padded / pair, 0u);
}

// Replaces what is not finite by 0; true when there was any.
template <class T>
bool clear_nonfinite(T* row, int64_t dim, T exponent) {
  T worst = 0;
  for (int64_t d = 0; d < dim; ++d) {
    const bool bad = (row[d] & exponent) == exponent;
    worst |= static_cast<T>(bad);
    row[d] = bad ? T{0} : row[d];
  }
  return worst != 0;
}

// Two rows of bf16 side by side, as pairs: panels of `lanes` columns.
void interleave_rows(const uint16_t* low, const uint16_t* high, int64_t padded, int lanes,
                     int64_t panel_stride, uint32_t* to) {
  for (int64_t d = 0; d < padded; d += lanes, to += panel_stride) {
    for (int j = 0; j < lanes; ++j) {
      to[j] = low[d + j] | static_cast<uint32_t>(high[d + j]) << 16;
    }
  }
}

bool load_bf16_row(const BlockSource& source, int n, uint16_t* row) {
  if (n >= source.count) {
    std::fill_n(row, source.padded, uint16_t{0});
    return false;
  }
  const int64_t offset = source.rows.offset(source.first + n);
  if (source.dtype == DType::kE4M3) {
    const uint8_t* from = static_cast<const uint8_t*>(source.data) + offset;
    for (int64_t d = 0; d < source.dim; ++d) row[d] = kBf16OfE4M3[from[d]];
  } else {
    std::copy_n(static_cast<const uint16_t*>(source.data) + offset, source.dim, row);
  }
  std::fill(row + source.dim, row + source.padded, uint16_t{0});
  return clear_nonfinite<uint16_t>(row, source.dim, 0x7f80u);
}

bool pack_value_pairs(const BlockSource& source, int lanes, uint32_t* to) {
  const int64_t panel_stride = static_cast<int64_t>(source.tile_n) / 2 * lanes;
  bool nonfinite = false;
  uint16_t rows[2][kMaxHeadDim];
  for (int n = 0; n < source.tile_n; n += 2) {
    nonfinite |= load_bf16_row(source, n, rows[0]);
    nonfinite |= load_bf16_row(source, n + 1, rows[1]);
    interleave_rows(rows[0], rows[1], source.padded, lanes, panel_stride, to + n / 2 * lanes);
  }
  return nonfinite;
}

bool pack_value_floats(const BlockSource& source, int lanes, uint32_t* to) {
  const int64_t panel_stride = static_cast<int64_t>(source.tile_n) * lanes;
  bool nonfinite = false;
  uint32_t row[kMaxHeadDim];
  for (int n = 0; n < source.tile_n; ++n, to += lanes) {
    if (n < source.count) {
      row_units(source.dtype, source.data, source.rows.offset(source.first + n), source.dim,
                source.padded, 1, row);
      nonfinite |= clear_nonfinite<uint32_t>(row, source.dim, 0x7f800000u);
    } else {
      std::fill_n(row, source.padded, 0u);
    }
    for (int64_t d = 0; d < source.padded; d += lanes) {
      std::copy_n(row + d, lanes, to + d / lanes * panel_stride);
    }
  }
  return nonfinite;
}

}  // namespace

void pack_query(DType dtype, const void* q, int64_t offset, int64_t head_dim, int64_t padded,
                int pair, float sign, void* packed) {
  row_units(dtype, q, offset, head_dim, padded, pair, static_cast<uint32_t*>(packed));
  if (sign == 1.0f) return;
  for (int64_t d = 0; d < head_dim; ++d) {
    if (pair == 2) {
      uint16_t& bits = static_cast<uint16_t*>(packed)[d];
      bits = float_to_bf16(bf16_to_float(bits) * sign);
    } else {
      static_cast<float*>(packed)[d] *= sign;
    }
  }
}

void pack_keys(const BlockSource& source, const CpuPacking& packing, void* packed) {
  const int lanes = packing.lanes;
  const int64_t units = source.padded / packing.pair;
  auto* to = static_cast<uint32_t*>(packed);
  uint32_t rows[16][kMaxHeadDim];
  for (int panel = 0; panel < source.tile_n; panel += lanes, to += units * lanes) {
    for (int j = 0; j < lanes; ++j) {
      const int n = panel + j;
      if (n < source.count) {
        row_units(source.dtype, source.data, source.rows.offset(source.first + n), source.dim,
                  source.padded, packing.pair, rows[j]);
      } else {
        std::fill_n(rows[j], units, 0u);
      }
    }
    for (int64_t u = 0; u < units; ++u) {
      for (int j = 0; j < lanes; ++j) to[u * lanes + j] = rows[j][u];
    }
  }
}

bool pack_values(const BlockSource& source, const CpuPacking& packing, void* packed) {
  auto* to = static_cast<uint32_t*>(packed);
  return packing.pair == 2 ? pack_value_pairs(source, packing.lanes, to)
                           : pack_value_floats(source, packing.lanes, to);
}

}  // namespace fa4::internal
