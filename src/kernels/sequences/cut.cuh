// Where packed sequences begin among some of the rows: the sequences that lie in them, cut at their
// ends; the others are empty there.
#pragma once

#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/sequences/params.h"

namespace fa4 {

// Where `row` of the whole is among rows [first, end).
__device__ inline int32_t cut_row(int32_t row, int32_t first, int32_t end) {
  return min(max(row, first), end) - first;
}

__global__ void __launch_bounds__(kCutThreads) cut_sequences(const __grid_constant__ CutParams p) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kCutThreads + threadIdx.x;
  if (i >= p.count) return;
  p.shard_q[i] = cut_row(p.cu_seqlens_q[i], p.first_query, p.end_query);
  p.shard_k[i] = cut_row(p.cu_seqlens_k[i], p.first_key, p.end_key);
}

}  // namespace fa4
