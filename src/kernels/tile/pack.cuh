// Two floats as a pair of 16 bits; the floats that are no numbers.
#pragma once

#include "kernels/base/element.h"
#include "kernels/ptx/math.cuh"

namespace fa4 {

inline constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000);
inline constexpr float kNaN = __builtin_bit_cast(float, 0x7fffffff);

template <Element kElement>
__device__ inline uint32_t pack(float lower, float upper) {
  if constexpr (kElement == Element::kBF16) return ptx::cvt_rn_bf16x2(upper, lower);
  return ptx::cvt_rn_f16x2(upper, lower);
}

}  // namespace fa4
