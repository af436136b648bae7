// A row of sums as a row of a tensor, sixteen elements at a time.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/dtype.h"

namespace fa4::internal {
namespace {

// To nearest even; every NaN stays a quiet NaN: the bits of float_to_bf16.
inline __m256i bf16_of(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet));
}

// `dim` is a multiple of 8.
template <DType kDType>
void store_elements(const float* sums, float factor, int64_t dim, char* to) {
  for (int64_t d = 0; d < dim; d += 16) {
    const __mmask16 lanes = dim - d >= 16 ? 0xffff : 0xff;
    const __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, sums + d), _mm512_set1_ps(factor));
    if constexpr (kDType == DType::kF32) {
      _mm512_mask_storeu_ps(to + d * 4, lanes, x);
    } else {
      _mm256_mask_storeu_epi16(
          to + d * 2, lanes,
          kDType == DType::kBF16 ? bf16_of(x) : _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
  }
}

}  // namespace
}  // namespace fa4::internal
