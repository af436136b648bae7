// Hiding scores outside a row's key bounds, when a thread holds a row.
#pragma once

#include "kernels/attention/pack.cuh"

namespace fa4 {

// Bits [0, count) of a word; count may lie outside 0 to 32.
__device__ inline uint32_t low_bits(int count) {
  return __funnelshift_lc(0xffffffffu, 0u, count > 0 ? count : 0);
}

// Scores outside [begin, end) become -inf. One bit a column: R2P moves seven of them to predicates
// at a time.
__device__ inline void mask_row(float (&s)[32], int begin, int end) {
  const uint32_t visible = low_bits(end) & ~low_bits(begin);
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if ((visible >> i & 1) == 0) s[i] = -kInfinity;
  }
}

}  // namespace fa4
