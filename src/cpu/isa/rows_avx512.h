// AVX-512's products of floats, and its reading of keys and values where they lie.
#pragma once

#include "cpu/isa/vec_avx512.h"
#include "cpu/tile_job.h"

namespace fa4::internal {
namespace {

struct Avx512Path : Avx512Vec {
  using P = float;
  static constexpr int kPair = 1;
  static constexpr int kPanels = 4;
  // Of compensated scores: 12 sums, their totals, and 4 vectors of keys.
  static constexpr int kScoreRows = 3, kScorePart = 3;
  static constexpr bool kTotalsInRegisters = true;

  static F broadcast_unit(const uint32_t* p) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)));
  }
  static F load_units(const uint32_t* p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
  static F multiply_add(F sum, F a, F b) { return _mm512_fmadd_ps(a, b, sum); }
  static void store_probabilities(P* p, F first, F second) {
    store(p, first);
    store(p + kLanes, second);
  }
};

// Keys and values where they lie, sixteen elements at a time.
struct Avx512Rows : Avx512Path {
  template <KeyType kType, bool kHalf>
  static F load_elements(const void* row, int at) {
    if constexpr (kType == KeyType::kF32) {
      const float* from = static_cast<const float*>(row) + at;
      return kHalf ? _mm512_maskz_loadu_ps(0xff, from) : load(from);
    } else if constexpr (kType == KeyType::kE4M3) {
      const auto* from = reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(row) + at);
      const __m128i bytes = kHalf ? _mm_loadl_epi64(from) : _mm_loadu_si128(from);
      return floats_of_e4m3(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
    } else {
      const uint16_t* from = static_cast<const uint16_t*>(row) + at;
      const __m256i bits =
          kHalf ? _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))
                : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      if constexpr (kType == KeyType::kF16) return _mm512_cvtph_ps(bits);
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
  }
  // bf16 and e4m3: those of even places, then those of odd ones.
  template <KeyType kType>
  static void load_pair(const void* row, int at, F& first, F& second) {
    if constexpr (kType == KeyType::kBF16) {
      const __m512i bits = _mm512_loadu_si512(static_cast<const uint16_t*>(row) + at);
      first = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
      second = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(~0xffff)));
    } else if constexpr (kType == KeyType::kE4M3) {
      const __m256i bytes = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(static_cast<const uint8_t*>(row) + at));
      first = floats_of_e4m3(_mm256_slli_epi16(bytes, 8));
      second = floats_of_e4m3(bytes);
    } else {
      first = load_elements<kType, false>(row, at);
      second = load_elements<kType, false>(row, at + kLanes);
    }
  }
  static float reduce_add(F x) { return _mm512_reduce_add_ps(x); }
  static void widen(double* to, F x) {
    _mm512_storeu_pd(to, _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
    _mm512_storeu_pd(to + 8, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
  }

 private:
  // Of the high byte of each half: moved right by a bit it is the f16 2^-8 times as large.
  static F floats_of_e4m3(__m256i halves) {
    const __m256i magnitude = _mm256_set1_epi16(0x3f80);
    const __m256i f16 =
        _mm256_and_si256(_mm256_srai_epi16(halves, 1), _mm256_set1_epi16(-0x4080));  // 0xbf80
    const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(f16, magnitude), magnitude);
    const F scaled = _mm512_mul_ps(_mm512_cvtph_ps(f16), _mm512_set1_ps(256.0f));
    return _mm512_mask_mov_ps(scaled, is_nan, _mm512_set1_ps(__builtin_nanf("")));
  }
};

}  // namespace
}  // namespace fa4::internal
