// Online softmax of one row a thread, as tensor memory gives it.
#pragma once

#include "kernels/ptx/packed.cuh"
#include "kernels/softmax/exp2.cuh"
#include "kernels/tile/pack.cuh"

namespace fa4 {

struct RowSoftmax {
  // Probabilities are 2^(score scale + offset): the offset is minus a maximum that may be stale by
  // kRescaleThreshold. +inf for a row that has seen no block; a row with an infinite score has -inf
  // from then on, one with NaN has NaN.
  Exp2Line line;
  float row_sum;

  // The state of a row that has seen nothing, in which every tile begins.
  __device__ void reset() {
    line.offset = kInfinity;
    row_sum = 0.0f;
  }

  // The least maximum, of unscaled scores: with it -inf exponentiates to 0 and no inf - inf comes
  // up, without a case for a block that hides everything from the row.
  __device__ static float lowest_max(float scale_log2) { return kLowestMaxLog2 / scale_log2; }

  // The power of two that a move to a block's maximum, at least lowest_max(), would multiply the
  // sum and the output so far by, and whether it is worth one: in the first block always.
  __device__ float shift_to(float block_max, float scale_log2) const {
    return fmaf(-scale_log2, block_max, -line.offset);
  }
  __device__ static bool is_far(float shift) { return !(shift >= -kRescaleThreshold); }

  // The move, of a row for which it is worth one; returns the power of two that it took, else 0.
  __device__ float move(float block_max, float shift, float scale_log2) {
    const float to = -scale_log2 * block_max;
    const float moved = is_far(shift) ? to - line.offset : 0.0f;
    row_sum *= ptx::ex2_approx_ftz(moved);
    line.set(scale_log2, is_far(shift) ? to : line.offset);
    return moved;
  }

  // A block's probabilities are added in four chains, pair by pair: chunk by chunk or all at once
  // gives the same bits, and so does leaving out a chunk of zeros.
  struct Sum {
    static constexpr int kChains = 4;
    ptx::Float2 chains[kChains];

    template <int kCount>
    __device__ void add(const float (&p)[kCount]) {
#pragma unroll
      for (int i = 0; i < kCount; i += 2) add_pair(i / 2, p[i], p[i + 1]);
    }
    // The sum is empty: the first pair of a chain becomes its value, which saves the addition to 0.
    template <int kCount>
    __device__ void begin(const float (&p)[kCount]) {
#pragma unroll
      for (int i = 0; i < kCount; i += 2) {
        if (i / 2 < kChains) {
          chains[i / 2] = ptx::pack_float2(p[i], p[i + 1]);
        } else {
          add_pair(i / 2, p[i], p[i + 1]);
        }
      }
    }
    __device__ void begin_empty() {
#pragma unroll
      for (int i = 0; i < kChains; ++i) chains[i] = ptx::pack_float2(0.0f);
    }

   private:
    __device__ void add_pair(int pair, float p0, float p1) {
      ptx::add_rn_ftz(chains[pair % kChains], p0, p1);
    }
  };
  __device__ void end_sum(const Sum& sum) {
    const ptx::Float2 all = ptx::add_rn_ftz(ptx::add_rn_ftz(sum.chains[0], sum.chains[1]),
                                            ptx::add_rn_ftz(sum.chains[2], sum.chains[3]));
    float lower, upper;
    ptx::unpack_float2(all, &lower, &upper);
    row_sum += lower + upper;
  }

  __device__ float max_log2() const { return -line.offset; }
};

}  // namespace fa4
