// The two floats of a pair of 16 bits, and one float of any type.
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

__device__ inline float load_float(const void* data, FloatType type, int64_t index) {
  if (type == FloatType::kF32) return static_cast<const float*>(data)[index];
  const uint32_t bits = static_cast<const uint16_t*>(data)[index];
  return type == FloatType::kBF16 ? unpack_lower<Element::kBF16>(bits)
                                  : unpack_lower<Element::kF16>(bits);
}

}  // namespace fa4
