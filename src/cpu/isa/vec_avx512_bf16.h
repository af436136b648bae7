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
};

// For Intel cores: two instructions in place of four.
struct AmxVec : Avx512Bf16Vec {
  // x less the nearest whole number; 0 of an infinity.
  static F fraction_to_nearest(F x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT); }
  // x times 2 to a whole number.
  static F scale_by_power(F x, F power) { return _mm512_scalef_ps(x, power); }
};

}  // namespace
}  // namespace fa4::internal
