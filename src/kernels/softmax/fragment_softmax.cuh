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

// A number for each of a thread's two rows.
struct RowPair {
  float of[2];

  __device__ static RowPair both(float x) { return {{x, x}}; }
};

// Probabilities are 2^(score - maximum - kShift). Scores may be above their row's maximum until a
// thread's share of a block's probabilities is 2^kMostLog2: exceeds().
template <int kShift = 0, int kMostLog2 = 0>
struct FragmentSoftmax {
  float row_max[2];    // of unscaled scores, of the blocks that update_max() looked at
  float rise[2];       // of the last block's maximum over it, in powers of two
  float acc_scale[2];  // what rescale() multiplies by
  float row_sum[2];    // of this thread's columns
  float block_sum[2];  // of those of the last block

  // The state of a row that has seen nothing, in which every tile begins.
  __device__ void reset() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row_max[r] = -kInfinity;
      row_sum[r] = 0.0f;
    }
  }

  // Probabilities and their sums, which add_block() adds to the rows'. visit(i, r, x, y) takes
  // those of row r in columns 2 i and 2 i + 1 of the thread. It must not write them over scores
  // that wgmma left: ptxas would serialise the products into those registers. `kRows` 1: the second
  // row does not exist, its probabilities are 0.
  template <int kRows, int kScores, class Visit>
  __device__ void exponentiate(const float (&s)[kScores], const RowPair& scale_log2, Visit visit) {
    constexpr int kChunk = 8;  // pairs of columns of a row
    float offset[2], next_offset[2], even[2] = {}, odd[2] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      offset[r] = -(ptx::max_nan(row_max[r] * scale_log2.of[r], kLowestMaxLog2) + kShift);
    }
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (r >= kRows) {
          visit(i, r, 0.0f, 0.0f);
          continue;
        }
        const float scale = scale_log2.of[r];
        const float x = ptx::ex2_approx_ftz(fmaf(s[4 * i + 2 * r], scale, offset[r]));
        const float y = ptx::ex2_approx_ftz(fmaf(s[4 * i + 2 * r + 1], scale, offset[r]));
        even[r] = i == 0 ? x : even[r] + x;
        odd[r] = i == 0 ? y : odd[r] + y;
        visit(i, r, x, y);
        // The same offset, but known only after a probability of this chunk: ptxas would put the
        // multiplications of all columns before the first exponentials instead of beside them.
        if (i % kChunk == 2) next_offset[r] = fmaf(x, 0.0f, offset[r]);
        if (i % kChunk == kChunk - 1) offset[r] = next_offset[r];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) block_sum[r] = even[r] + odd[r];
  }
  __device__ void add_block() {
#pragma unroll
    for (int r = 0; r < 2; ++r) row_sum[r] += block_sum[r];
  }

  // After exponentiate(): whether a row of the warp has scores so far above its maximum that this
  // is to be moved, and the block's probabilities found once more. So nobody need look at maxima in
  // advance: nearly always that of the row's first block serves. A sum that is NaN counts too: of
  // NaN, or of an infinite probability, behind which exponentiate() has no offset.
  __device__ bool exceeds() const {
    return __any_sync(0xffffffffu, is_too_much(ptx::max_nan(block_sum[0], block_sum[1])));
  }
  // Whether row `r` alone exceeds; all threads of its quad get the same answer, so that a row's
  // bits depend on no other row.
  __device__ bool row_exceeds(int r) const {
    const uint32_t threads = __ballot_sync(0xffffffffu, is_too_much(block_sum[r]));
    return (threads >> (threadIdx.x & 28) & 15) != 0;
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

  // Moves the maxima of the rows for which it is `due` to those of a block's scores, both rows side
  // by side, where these are more than `far` powers of two above. Returns whether any row of the
  // warp did: then rescale() is next, and the output is to be multiplied by acc_scale.
  template <int kRows, int kScores>
  __device__ bool update_max(const float (&s)[kScores], const RowPair& scale_log2,
                             const bool (&due)[2], float far) {
    const float maximum[2] = {block_max(s, 0), kRows == 2 ? block_max(s, 1) : row_max[1]};
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old_max = row_max[r];
      const float new_max = ptx::max_nan(old_max, maximum[r]);
      const float above = (new_max - old_max) * scale_log2.of[r];  // NaN if both are -inf
      row_max[r] = !due[r] | (above <= far) ? old_max : new_max;
      rise[r] = due[r] & (above > far) ? above : 0.0f;
      moved |= due[r] & (above > far);
    }
    return __any_sync(0xffffffffu, moved);
  }

  // Makes the sums relative to the maxima that update_max() has moved.
  __device__ void rescale() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      acc_scale[r] = ptx::ex2_approx_ftz(-rise[r]);
      row_sum[r] *= acc_scale[r];
    }
  }

  // After the last block: the sum of row `r` over the quad's columns, and the exponent that its
  // probabilities are relative to, as finish_row takes them.
  struct Total {
    float sum;
    float max_log2;
  };
  __device__ Total total(int r, const RowPair& scale_log2) const {
    const float sums[2] = {quad_sum(row_sum[0]), quad_sum(row_sum[1])};
    const float max_log2 = r == 0 ? row_max[0] * scale_log2.of[0] : row_max[1] * scale_log2.of[1];
    // Rounded as in exponentiate(): the product by itself.
    return {r == 0 ? sums[0] : sums[1], kShift == 0 ? max_log2 : ptx::add_rn_ftz(max_log2, kShift)};
  }

 private:
  __device__ static bool is_too_much(float sum) { return !(sum <= 1 << kMostLog2); }
};

}  // namespace fa4
