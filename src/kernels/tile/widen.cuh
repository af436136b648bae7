// Bytes (e4m3) made 16 bits in registers.
#pragma once

#include "kernels/ptx/math.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4 {

// Two pairs of 16 bits, the first byte's in the lower half of the first. Exact: both types hold
// every e4m3 number. A pair of f16 takes one instruction, of bf16 four.
struct Widened {
  uint32_t lower, upper;
};
template <Element kElement>
__device__ inline Widened widen(uint32_t bytes) {
  Widened w;
  ptx::cvt_rn_f16x2_e4m3x2(bytes, &w.lower, &w.upper);
  if constexpr (kElement == Element::kBF16) {
    const auto from_f16 = [](uint32_t pair) {
      return ptx::cvt_rn_bf16x2(unpack_upper<Element::kF16>(pair),
                                unpack_lower<Element::kF16>(pair));
    };
    w = {from_f16(w.lower), from_f16(w.upper)};
  }
  return w;
}

}  // namespace fa4
