// Rows of bf16 as f16, beside bytes, which take one instruction a pair to become f16.
#pragma once

#include "kernels/base/integers.h"
#include "kernels/ptx/math.cuh"

namespace fa4 {

// A row of bf16 as f16 times a power of two, by which its largest magnitude has f16's largest
// exponent. Then only what is below 2^-29 of that loses bits, and a row with inf or NaN keeps them.
struct F16Row {
  uint32_t lost;  // what magnitudes lose of their exponents, in both halves
  float unit;     // the power of two

  // Converts a pair of elements: f16 has three bits more behind the point than bf16, hence the 8.
  __device__ uint32_t of(uint32_t pair) const {
    const uint32_t magnitudes = ptx::max_u16x2(pair & kMagnitudes, lost) * 8 - lost * 8;
    return (pair & ~kMagnitudes) | magnitudes;
  }

  static constexpr uint32_t kMagnitudes = 0x7fff7fff;
};

// Finds the F16Row of each of the two rows that the lanes of a quad share.
class F16Rows {
 public:
  // A pair of elements of row `r`, before the first of().
  __device__ void look_at(int r, uint32_t pair) {
    largest[r] = ptx::max_u16x2(largest[r], pair & F16Row::kMagnitudes);
  }
  // Called when look_at() has seen all pairs.
  __device__ void find(F16Row (&rows)[2]) const {
    uint32_t both = ptx::max_u16x2(__byte_perm(largest[0], largest[1], 0x5410),
                                   __byte_perm(largest[0], largest[1], 0x7632));
    both = ptx::max_u16x2(both, __shfl_xor_sync(0xffffffffu, both, 1));
    both = ptx::max_u16x2(both, __shfl_xor_sync(0xffffffffu, both, 2));
    rows[0] = row(both & 0xffffu);
    rows[1] = row(both >> 16);
  }

 private:
  __device__ static F16Row row(uint32_t largest) {
    constexpr uint32_t kBits = 7, kMost = 224;  // of bf16 behind the point; inf becomes inf
    const uint32_t lost = min(max(largest >> kBits, 30u) - 30, kMost);
    return {(lost << kBits) * 0x10001, __uint_as_float((lost + 15) << 23)};
  }

  uint32_t largest[2] = {};  // magnitudes of either half of the pairs
};

}  // namespace fa4
