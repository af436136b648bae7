// Sixteen floats in a zmm register, and their probabilities as bf16.
#pragma once

#include "cpu/isa/vec_avx512.h"

namespace fa4::internal {
namespace {

struct Avx512Bf16Vec : Avx512Vec {
  using P = uint16_t;

  // 2 kLanes columns.
  static void store_probabilities(P* p, F first, F second) {
    _mm512_storeu_si512(p, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
  // 2 kLanes columns of a row, rounded.
  using Row = __m512i;
  static Row round_row(F first, F second) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  }
  static void store_row(uint32_t* to, Row row) { _mm512_storeu_si512(to, row); }
  // Two rows as pairs, `low`'s first: of every 8 columns four to `to_first`, four to `to_second`.
  static void store_pairs(uint32_t* to_first, uint32_t* to_second, Row low, Row high) {
    _mm512_storeu_si512(to_first, _mm512_unpacklo_epi16(low, high));
    _mm512_storeu_si512(to_second, _mm512_unpackhi_epi16(low, high));
  }
  // kLanes columns of two rows as pairs of bf16, `low`'s first.
  static void store_row_pairs(uint32_t* pairs, F low, F high) {
    const __m512i first = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(low)));
    const __m512i second =
        _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(high)));
    _mm512_storeu_si512(pairs, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
  }
  // kLanes columns.
  static F load_probabilities(const P* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
};

// For Intel cores, where a fraction, a scaling by a power of two and a look-up among 32 floats are
// one instruction each.
struct AmxVec : Avx512Bf16Vec {
  static F fms(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }
  // x - floor(x), rounded down, so that it is below 1; 0 of an infinity.
  static F fraction(F x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF); }
  // x times 2^floor(power).
  static F scale_by_floor(F x, F power) { return _mm512_scalef_ps(x, power); }
  // 32 floats in registers, and which of 32 pieces of [0, 1) a lane lies in: what is added leaves
  // it in the last five bits, and no other bit counts.
  struct Table {
    F low, high;
  };
  using Piece = __m512i;
  static Table table(const float* p) { return {load(p), load(p + kLanes)}; }
  static Piece piece_of(F f) {
    return _mm512_castps_si512(
        _mm512_add_round_ps(f, _mm512_set1_ps(0x1p18f), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
  }
  static F look_up(const Table& table, Piece piece) {
    return _mm512_permutex2var_ps(table.low, piece, table.high);
  }
  // Whether a lane is above its limit, or NaN.
  static bool any_above(F x, F limit) { return _mm512_cmp_ps_mask(x, limit, _CMP_NLE_UQ) != 0; }
};

}  // namespace
}  // namespace fa4::internal
