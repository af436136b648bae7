// A float as one element of a type that is known when the kernel runs.
#pragma once

#include "kernels/tile/pack.cuh"

namespace fa4 {

__device__ inline void store_float(void* data, FloatType type, int64_t index, float value) {
  if (type == FloatType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    const uint32_t pair = type == FloatType::kBF16 ? pack<Element::kBF16>(value, value)
                                                   : pack<Element::kF16>(value, value);
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(pair);
  }
}

}  // namespace fa4
