// The two floats of a pair of 16 bits.
#pragma once

#include "kernels/base/element.h"
#include "kernels/ptx/math.cuh"

namespace fa4 {

template <Element kElement>
__device__ inline float unpack_lower(uint32_t pair) {
  if constexpr (kElement == Element::kBF16) return __uint_as_float(pair << 16);
  return ptx::cvt_f32_f16(static_cast<uint16_t>(pair));
}
template <Element kElement>
__device__ inline float unpack_upper(uint32_t pair) {
  if constexpr (kElement == Element::kBF16) return __uint_as_float(pair & 0xffff0000u);
  return ptx::cvt_f32_f16(static_cast<uint16_t>(pair >> 16));
}

}  // namespace fa4
