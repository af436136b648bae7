// Sixteen floats in a zmm register, or eight doubles.
//
// Everything in this folder's headers has internal linkage: each path is its own translation unit,
// built with its own instructions.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace fa4::internal {
namespace {

// Eight doubles; of floats exactly, and stored as floats they are rounded.
struct Avx512Doubles {
  using F = __m512d;
  using Number = double;
  static constexpr int kLanes = 8;

  static F zero() { return _mm512_setzero_pd(); }
  static F set1(double x) { return _mm512_set1_pd(x); }
  static F load(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
  static F load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, _mm512_cvtpd_ps(x)); }
  // As floats, and what those lack; NaN and infinities lack nothing.
  static void store_split(float* high, float* low, F x) {
    const __m256 rounded = _mm512_cvtpd_ps(x);
    const __m256 rest = _mm512_cvtpd_ps(_mm512_sub_pd(x, _mm512_cvtps_pd(rounded)));
    const __mmask8 is_number = _mm256_cmp_ps_mask(rest, rest, _CMP_ORD_Q);
    _mm256_storeu_ps(high, rounded);
    _mm256_storeu_ps(low, _mm256_maskz_mov_ps(is_number, rest));
  }
  static F add(F a, F b) { return _mm512_add_pd(a, b); }
  static F sub(F a, F b) { return _mm512_sub_pd(a, b); }
  static F mul(F a, F b) { return _mm512_mul_pd(a, b); }
  static F div(F a, F b) { return _mm512_div_pd(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_pd(a, b, c); }
  static double reduce_add(F x) { return _mm512_reduce_add_pd(x); }
  // The second operand when either is NaN.
  static F max(F a, F b) { return _mm512_max_pd(a, b); }
  static F min(F a, F b) { return _mm512_min_pd(a, b); }
  // The bits, shifted left by 52.
  static F to_exponent(F x) {
    return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(x), 52));
  }
};

struct Avx512Vec {
  using F = __m512;
  using Unaligned = __m512_u;
  using Number = float;
  using Doubles = Avx512Doubles;
  static constexpr int kLanes = 16;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // The second operand when either is NaN.
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  // The bits, shifted left by 23.
  static F to_exponent(F x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
  }
  static bool any_nan(F x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0; }
  static float reduce_max(F x) { return _mm512_reduce_max_ps(x); }
  // x in the lanes [begin, end), -infinity elsewhere; begin and end may lie outside [0, 16].
  static F keep_range(F x, int begin, int end) {
    return _mm512_mask_blend_ps(lanes_of(begin, end), _mm512_set1_ps(-__builtin_inff()), x);
  }
  // The same with 0 elsewhere.
  static F keep_or_zero(F x, int begin, int end) {
    return _mm512_maskz_mov_ps(lanes_of(begin, end), x);
  }

  // Products of Doubles.
  static constexpr int kDoubleRows = 6;    // of sums in registers
  static constexpr int kDoublePanels = 1;  // of kLanes columns

 private:
  static __mmask16 lanes_of(int begin, int end) {
    const uint32_t from = begin <= 0 ? 0xffffu : begin >= 16 ? 0u : 0xffffu << begin;
    const uint32_t until = end >= 16 ? 0xffffu : end <= 0 ? 0u : (1u << end) - 1;
    return static_cast<__mmask16>(from & until);
  }
};

}  // namespace
}  // namespace fa4::internal
