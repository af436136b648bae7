// Hiding scores outside a row's key bounds, when a thread holds a row.
#pragma once

#include "kernels/ptx/math.cuh"
#include "kernels/ptx/select.cuh"

namespace fa4 {

// Scores outside [begin, end) become -inf. One bit a column: R2P moves seven of them to predicates
// at a time.
__device__ inline void mask_row(float (&s)[32], int begin, int end) {
  const uint32_t visible =
      ptx::bmsk_clamp(0, end > 0 ? end : 0) & ~ptx::bmsk_clamp(0, begin > 0 ? begin : 0);
  ptx::hide_others(s, visible);
}

}  // namespace fa4
