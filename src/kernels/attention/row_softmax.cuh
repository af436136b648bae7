// Online softmax of one row a thread, as tensor memory gives it.
#pragma once

#include "kernels/attention/exp2_math.h"
#include "kernels/attention/pack.cuh"
#include "kernels/ptx/packed.cuh"

namespace fa4 {

struct RowSoftmax {
  float row_max;  // of unscaled scores; may be stale by kRescaleThreshold
  float row_sum;

  // Of a row that has seen nothing.
  __device__ void reset() {
    row_max = -kInfinity;
    row_sum = 0.0f;
  }

  // Moves the maximum to `new_max`, which is at least as large, if it rose by more than the
  // threshold. Returns the factor of the sum and the output so far.
  __device__ float update_max(float new_max, float scale_log2) {
    const float rise = (new_max - row_max) * scale_log2;  // NaN if both are -inf
    const bool keep = rise <= kRescaleThreshold || new_max == -kInfinity;
    const float factor = ptx::ex2_approx_ftz(-rise);
    row_max = keep ? row_max : new_max;
    return keep ? 1.0f : factor;
  }

  // Probabilities are 2^(score scale_log2 + offset). A row without a finite maximum is
  // exponentiated relative to 0: exp(-inf) = 0, and no inf - inf. One with an infinite score
  // becomes NaN as a whole, in the columns of the polynomial as well.
  __device__ float offset(float scale_log2) const {
    const float offset = row_max == kInfinity ? kNaN : -row_max * scale_log2;
    return row_max == -kInfinity ? 0.0f : offset;
  }

  // A block's probabilities are added in four chains, pair by pair: chunk by chunk or all at once
  // gives the same bits, and so does leaving out a chunk of zeros.
  struct Sum {
    static constexpr int kChains = 4;
    ptx::Float2 chains[kChains];

    template <int kCount>
    __device__ void add(const float (&p)[kCount]) {
#pragma unroll
      for (int i = 0; i < kCount; i += 2) {
        ptx::Float2& chain = chains[i / 2 % kChains];
        chain = ptx::add_rn_ftz(chain, ptx::pack_float2(p[i], p[i + 1]));
      }
    }
  };
  __device__ Sum begin_sum(float factor) const {
    return {{ptx::pack_float2(row_sum * factor, 0.0f), ptx::pack_float2(0.0f),
             ptx::pack_float2(0.0f), ptx::pack_float2(0.0f)}};
  }
  __device__ void end_sum(const Sum& sum) {
    const ptx::Float2 all = ptx::add_rn_ftz(ptx::add_rn_ftz(sum.chains[0], sum.chains[1]),
                                            ptx::add_rn_ftz(sum.chains[2], sum.chains[3]));
    float lower, upper;
    ptx::unpack_float2(all, &lower, &upper);
    row_sum = lower + upper;
  }
};

}  // namespace fa4
