// Sums over the lanes of a warp.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

// The values of all lanes up to this one, itself among them, put together by `add`. All lanes call
// it together.
template <class Add>
__device__ inline int32_t inclusive_scan(int32_t value, Add add) {
#pragma unroll 1
  for (int d = 1; d < 32; d *= 2) {
    const int32_t below = __shfl_up_sync(0xffffffffu, value, d);
    if (static_cast<int>(threadIdx.x % 32) >= d) value = add(value, below);
  }
  return value;
}
__device__ inline int32_t inclusive_sum(int32_t value) {
  return inclusive_scan(value, [](int32_t a, int32_t b) { return a + b; });
}

}  // namespace fa4
