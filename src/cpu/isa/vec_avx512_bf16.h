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

}  // namespace
}  // namespace fa4::internal
