#include "cpu/pack.h"

#include <emmintrin.h>

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

__m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
void store_128(uint32_t* p, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }

// 4 x 4 units, those from byte `at` of four rows on: they become four columns of a panel of
// `lanes`.
void transpose_four(const char* const* rows, int64_t at, int lanes, uint32_t* to) {
  const __m128i row0 = load_128(rows[0] + at), row1 = load_128(rows[1] + at);
  const __m128i row2 = load_128(rows[2] + at), row3 = load_128(rows[3] + at);
  const __m128i low01 = _mm_unpacklo_epi32(row0, row1), low23 = _mm_unpacklo_epi32(row2, row3);
  const __m128i high01 = _mm_unpackhi_epi32(row0, row1), high23 = _mm_unpackhi_epi32(row2, row3);
  store_128(to, _mm_unpacklo_epi64(low01, low23));
  store_128(to + lanes, _mm_unpackhi_epi64(low01, low23));
  store_128(to + 2 * lanes, _mm_unpacklo_epi64(high01, high23));
  store_128(to + 3 * lanes, _mm_unpackhi_epi64(high01, high23));
}

// Row n of a block as units: where it lies if it is made of them, else in `copy`.
const char* units_of_row(const BlockSource& source, int n, int pair, uint32_t* copy) {
  if (n >= source.count) {
    std::fill_n(copy, source.padded / pair, 0u);
    return reinterpret_cast<const char*>(copy);
  }
  const int64_t offset = source.rows.offset(source.first + n);
  const DType of_units = pair == 2 ? DType::kBF16 : DType::kF32;
  if (source.dtype == of_units && source.dim == source.padded) {
    return static_cast<const char*>(source.data) + offset * size_of(of_units);
  }
  row_units(source.dtype, source.data, offset, source.dim, source.padded, pair, copy);
  return reinterpret_cast<const char*>(copy);
}

// Loads of bf16 or floats with 0 in place of what is not finite.
template <int kBits>
class FiniteElements {
 public:
  __m128i load(const char* from) {
    const __m128i x = load_128(from), bits = _mm_and_si128(x, exponent_);
    const __m128i bad =
        kBits == 16 ? _mm_cmpeq_epi16(bits, exponent_) : _mm_cmpeq_epi32(bits, exponent_);
    any_bad_ = _mm_or_si128(any_bad_, bad);
    return _mm_andnot_si128(bad, x);
  }
  // Whether there was any.
  bool replaced() const { return _mm_movemask_epi8(any_bad_) != 0; }

 private:
  const __m128i exponent_ = kBits == 16 ? _mm_set1_epi16(0x7f80) : _mm_set1_epi32(0x7f800000);
  __m128i any_bad_ = _mm_setzero_si128();
};

bool pack_value_pairs(const BlockSource& source, int lanes, uint32_t* to) {
  const int64_t panel_stride = static_cast<int64_t>(source.tile_n) / 2 * lanes;
  FiniteElements<16> elements;
  uint32_t copies[2][kMaxHeadDim / 2];
  for (int n = 0; n < source.tile_n; n += 2, to += lanes) {
    const char* low = units_of_row(source, n, 2, copies[0]);
    const char* high = units_of_row(source, n + 1, 2, copies[1]);
    uint32_t* pairs = to;
    for (int64_t d = 0; d < source.padded; d += lanes, pairs += panel_stride) {
      for (int j = 0; j < lanes; j += 8) {
        const __m128i first = elements.load(low + (d + j) * 2);
        const __m128i second = elements.load(high + (d + j) * 2);
        store_128(pairs + j, _mm_unpacklo_epi16(first, second));
        store_128(pairs + j + 4, _mm_unpackhi_epi16(first, second));
      }
    }
  }
  return elements.replaced();
}

bool pack_value_floats(const BlockSource& source, int lanes, uint32_t* to) {
  const int64_t panel_stride = static_cast<int64_t>(source.tile_n) * lanes;
  FiniteElements<32> elements;
  uint32_t copy[kMaxHeadDim];
  for (int n = 0; n < source.tile_n; ++n, to += lanes) {
    const char* row = units_of_row(source, n, 1, copy);
    uint32_t* floats = to;
    for (int64_t d = 0; d < source.padded; d += lanes, floats += panel_stride) {
      for (int j = 0; j < lanes; j += 4) store_128(floats + j, elements.load(row + (d + j) * 4));
    }
  }
  return elements.replaced();
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
  uint32_t copies[16][kMaxHeadDim];
  const char* rows[16];
  for (int panel = 0; panel < source.tile_n; panel += lanes, to += units * lanes) {
    for (int j = 0; j < lanes; ++j) {
      rows[j] = units_of_row(source, panel + j, packing.pair, copies[j]);
    }
    for (int64_t u = 0; u < units; u += 4) {  // of 8 elements or more
      for (int j = 0; j < lanes; j += 4) {
        transpose_four(rows + j, u * 4, lanes, to + u * lanes + j);
      }
    }
  }
}

bool pack_values(const BlockSource& source, const CpuPacking& packing, void* packed) {
  auto* to = static_cast<uint32_t*>(packed);
  return packing.pair == 2 ? pack_value_pairs(source, packing.lanes, to)
                           : pack_value_floats(source, packing.lanes, to);
}

}  // namespace fa4::internal
