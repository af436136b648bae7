// Attention over all keys from attention over parts of them: lse = log sum exp(lse_i), out = sum
// exp(lse_i - lse) out_i. A warp a row; parts are added in their order, in f32.
#pragma once

#include "kernels/output/params.h"
#include "kernels/output/traits.h"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/softmax/exp2_math.h"
#include "kernels/tile/store_float.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4 {
namespace merge {

inline constexpr int kColumns = 8;  // of a lane, 32 apart, at a time

// One row of one head, and its parts' lse.
template <int kParts>
struct Row {
  const MergeParams<kParts>& p;
  int64_t batch, head, position;

  __device__ Row(const MergeParams<kParts>& params, uint32_t index) : p(params) {
    const auto heads = static_cast<uint32_t>(p.heads), seqlen = static_cast<uint32_t>(p.seqlen);
    const uint32_t index_in_head = index / heads;
    head = index - index_in_head * heads;
    batch = index_in_head / seqlen;
    position = index_in_head - static_cast<uint32_t>(batch) * seqlen;
  }
  __device__ int64_t element(const MergeStrides& s) const {
    return batch * s.batch + position * s.seqlen + head * s.head;
  }
  __device__ float lse(int part) const { return p.lses[part][element(p.part_lse)]; }
};

// Relative to the largest lse, which is finite, or NaN.
__device__ inline float weight_of(float lse, float top) {
  return ptx::ex2_approx_ftz((lse - top) * kLog2E);
}

// The largest lse of a row's parts; NaN where one is NaN or infinite. A warp calls it.
template <int kParts>
__device__ inline float top_of(const Row<kParts>& row) {
  float top = -kInfinity;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < row.p.num_parts; i += 32) {
    top = ptx::max_nan(top, row.lse(i));
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) top = ptx::max_nan(top, __shfl_xor_sync(0xffffffffu, top, d));
  return top == kInfinity ? kNaN : top;
}
// The sum of the parts' weights, in their order.
template <int kParts>
__device__ inline float total_weight(const Row<kParts>& row, float top) {
  float total = 0.0f;
#pragma unroll 1
  for (int i = 0; i < row.p.num_parts; ++i) {
    const float lse = row.lse(i);
    if (lse != -kInfinity) total += weight_of(lse, top);
  }
  return total;
}

}  // namespace merge

template <int kParts>
__global__ void __launch_bounds__(kMergeThreads)
    merge_parts(const __grid_constant__ MergeParams<kParts> p) {
  using namespace merge;
  const int lane = threadIdx.x % 32;
  const uint32_t index = blockIdx.x * (kMergeThreads / 32) + threadIdx.x / 32;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (index >= p.rows) return;
  const Row<kParts> row(p, index);

  const float top = top_of(row);
  const bool is_nothing = top == -kInfinity;
  const float total = total_weight(row, top);

  const float factor = 1.0f / total;
  const int64_t from = row.element(p.part_out), to = row.element(p.merged);
#pragma unroll 1
  for (int first = lane; first < p.head_dim; first += 32 * kColumns) {
    float sums[kColumns] = {};
#pragma unroll 1
    for (int i = 0; i < p.num_parts; ++i) {
      const float lse = row.lse(i);
      if (lse == -kInfinity) continue;
      const float weight = weight_of(lse, top);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (first + 32 * j >= p.head_dim) continue;
        const float value = load_float(p.outs[i], p.part_type, from + first + 32 * j);
        // A weight that underflowed is still more than none.
        sums[j] += weight == 0.0f && fabsf(value) == kInfinity ? value : weight * value;
      }
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (first + 32 * j >= p.head_dim) continue;
      store_float(p.out, p.merged_type, to + first + 32 * j, is_nothing ? 0.0f : sums[j] * factor);
    }
  }
  __syncwarp();  // the merged lse may take the place of a part's, which all lanes have read
  if (lane == 0 && p.lse != nullptr) {
    p.lse[(row.batch * p.heads + row.head) * p.seqlen + row.position] =
        is_nothing ? -kInfinity : fmaf(ptx::lg2_approx_ftz(total), kLn2, top);
  }
}

}  // namespace fa4
