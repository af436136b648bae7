// Matrices of f32 added in their order and rounded once: terms of gradients, from several calls or
// several ranks.
#pragma once

#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/sums/params.h"
#include "kernels/sums/traits.h"
#include "kernels/tile/store_float.cuh"

namespace fa4 {

__global__ void __launch_bounds__(kSumThreads) sum_matrices(const __grid_constant__ SumParams p) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSumElements + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kSumElementsPerThread; ++i) {
    const int64_t index = first + i * kSumThreads;
    if (index >= p.elements) return;
    const int64_t row = index / p.columns, column = index - row * p.columns;
    const float* part = p.parts + row * p.part_pitch + column;
    float total = part[0];
#pragma unroll 1
    for (int j = 1; j < p.num_parts; ++j) total += part[j * p.part_stride];
    store_float(p.to, p.to_type, row * p.to_pitch + column, total);
  }
}

}  // namespace fa4
