// Online softmax of two rows a thread, in the register layout of a wgmma accumulator.
#pragma once

#include "kernels/ptx/math.cuh"
#include "kernels/softmax/exp2_math.h"

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
  float row_max[2];     // of unscaled scores; may be stale by kRescaleThreshold
  float rise[2];        // of the last block's maximum over it, in powers of two
  float acc_scale[2];   // what rescale() multiplies by
  float row_sum[2][2];  // of this thread's columns, even and odd ones

  // The state of a row that has seen nothing, in which every tile begins.
  __device__ void reset() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row_max[r] = -kInfinity;
      row_sum[r][0] = row_sum[r][1] = 0.0f;
    }
  }

  // After update_max(): probabilities relative to row_max, added to row_sum. visit(i, r, x, y)
  // takes those of row r in columns 2 i and 2 i + 1 of the thread. What writes them in the place of
  // scores that wgmma left has ptxas serialise the products into them. `kRows` 1: the second row
  // does not exist, its probabilities are 0.
  template <int kRows, int kScores, class Visit>
  __device__ void exponentiate(const float (&s)[kScores], float scale_log2, Visit visit) {
    constexpr int kChunk = 8;  // pairs of columns of a row
    float offset[2], next_offset[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      offset[r] = -ptx::max_nan(row_max[r] * scale_log2, kLowestMaxLog2);
    }
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (r >= kRows) {
          visit(i, r, 0.0f, 0.0f);
          continue;
        }
        const float x = ptx::ex2_approx_ftz(fmaf(s[4 * i + 2 * r], scale_log2, offset[r]));
        const float y = ptx::ex2_approx_ftz(fmaf(s[4 * i + 2 * r + 1], scale_log2, offset[r]));
        row_sum[r][0] += x;
        row_sum[r][1] += y;
        visit(i, r, x, y);
        // The same offset, but known only after a probability of this chunk: ptxas would put the
        // multiplications of all columns before the first exponentials instead of beside them.
        if (i % kChunk == 2) next_offset[r] = fmaf(x, 0.0f, offset[r]);
        if (i % kChunk == kChunk - 1) offset[r] = next_offset[r];
      }
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

  // Moves the maxima to those of the next block's scores, both rows side by side. Returns whether
  // any row of the warp did: then rescale() is due, and the output is to be multiplied by
  // acc_scale.
  template <int kRows, int kScores>
  __device__ bool update_max(const float (&s)[kScores], float scale_log2) {
    const float maximum[2] = {block_max(s, 0), kRows == 2 ? block_max(s, 1) : row_max[1]};
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old_max = row_max[r];
      const float new_max = ptx::max_nan(old_max, maximum[r]);
      rise[r] = (new_max - old_max) * scale_log2;  // NaN if both are -inf
      row_max[r] = rise[r] <= kRescaleThreshold ? old_max : new_max;
      moved |= rise[r] > kRescaleThreshold;
    }
    return __any_sync(0xffffffffu, moved);
  }

  // Moves the sums to the maxima.
  __device__ void rescale() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      acc_scale[r] = ptx::ex2_approx_ftz(rise[r] > kRescaleThreshold ? -rise[r] : 0.0f);
      row_sum[r][0] *= acc_scale[r];
      row_sum[r][1] *= acc_scale[r];
    }
  }

  // After the last block: the sum of row `r` over the quad's columns, and its maximum times
  // scale_log2, as finish_row takes them.
  struct Total {
    float sum;
    float max_log2;
  };
  __device__ Total total(int r, float scale_log2) const {
    const float sums[2] = {quad_sum(row_sum[0][0] + row_sum[0][1]),
                           quad_sum(row_sum[1][0] + row_sum[1][1])};
    return {r == 0 ? sums[0] : sums[1], (r == 0 ? row_max[0] : row_max[1]) * scale_log2};
  }
};

}  // namespace fa4
