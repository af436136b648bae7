// Online softmax of two rows a thread, in the register layout of a wgmma accumulator.
#pragma once

#include "kernels/softmax/exp2_math.h"
#include "kernels/tile/pack.cuh"

namespace fa4 {

__device__ inline float quad_max(float x) {
  x = ptx::max_nan(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return ptx::max_nan(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

struct OnlineSoftmax {
  float row_max[2];  // of unscaled scores; may be stale by kRescaleThreshold
  float row_sum[2];  // of this thread's columns
  float acc_scale[2];

  // The state of a row that has seen nothing, in which every tile begins.
  __device__ void reset() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row_max[r] = -kInfinity;
      row_sum[r] = 0.0f;
    }
  }

  // After update_max(): scores to probabilities relative to row_max, in place; moves row_sum to
  // that maximum and adds them.
  template <int kScores>
  __device__ void exponentiate(float (&s)[kScores], float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float offset = -ptx::max_nan(row_max[r] * scale_log2, kLowestMaxLog2);
      float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
      for (int i = 2 * r; i < kScores; i += 4) {
        s[i] = ptx::ex2_approx_ftz(fmaf(s[i], scale_log2, offset));
        s[i + 1] = ptx::ex2_approx_ftz(fmaf(s[i + 1], scale_log2, offset));
        sum0 += s[i];
        sum1 += s[i + 1];
      }
      row_sum[r] = fmaf(row_sum[r], acc_scale[r], sum0 + sum1);
    }
  }

  template <int kScores>
  __device__ static float block_max(const float (&s)[kScores], int r) {
    float max0 = s[2 * r], max1 = s[2 * r + 1];
#pragma unroll
    for (int i = 2 * r + 4; i < kScores; i += 4) {
      max0 = ptx::max_nan(max0, s[i]);
      max1 = ptx::max_nan(max1, s[i + 1]);
    }
    return quad_max(ptx::max_nan(max0, max1));
  }

  // Moves the maxima to those of the next block's scores. Returns whether any row of the warp did:
  // then the output is to be multiplied by acc_scale. kBothRowsAtOnce: without a branch between the
  // rows, so that ptxas mixes their instructions.
  template <bool kBothRowsAtOnce, int kScores>
  __device__ bool update_max(const float (&s)[kScores], float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old_max = row_max[r];
      const float new_max = ptx::max_nan(old_max, block_max(s, r));
      const float rise = (new_max - old_max) * scale_log2;  // NaN if both are -inf
      const bool keep = rise <= kRescaleThreshold;
      row_max[r] = keep ? old_max : new_max;
      if constexpr (kBothRowsAtOnce) {
        acc_scale[r] = ptx::ex2_approx_ftz(rise > kRescaleThreshold ? -rise : 0.0f);
      } else {
        acc_scale[r] = keep ? 1.0f : old_max == -kInfinity ? 0.0f : ptx::ex2_approx_ftz(-rise);
      }
    }
    return __any_sync(0xffffffffu, acc_scale[0] != 1.0f || acc_scale[1] != 1.0f);
  }

  // After the last block: the sum of row `r` over the quad's columns, and its maximum times
  // scale_log2, as finish_row takes them.
  struct Total {
    float sum;
    float max_log2;
  };
  __device__ Total total(int r, float scale_log2) const {
    const float sums[2] = {quad_sum(row_sum[0]), quad_sum(row_sum[1])};
    return {r == 0 ? sums[0] : sums[1], (r == 0 ? row_max[0] : row_max[1]) * scale_log2};
  }
};

}  // namespace fa4
