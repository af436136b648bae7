// The tensor cores' practical ceiling on Hopper: wgmma after wgmma on random operands that never
// leave shared memory. `fa4 bench` divides by it.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/sm90/peak/traits.h"
#include "kernels/tile/smem_descriptor.cuh"

namespace fa4 {

// Two warpgroups, each 64 x 256 accumulators. Shared memory: per slab of 64 columns, 2 x 64 rows of
// A and 256 rows of B; every word random, so that the operands toggle as real ones do.
__global__ void __launch_bounds__(sm90::kPeakThreads, 1)
    wgmma_peak_sm90(const __grid_constant__ PeakParams params) {
  extern __shared__ unsigned char smem_base[];
  unsigned char* smem = smem_base + (-ptx::smem_addr(smem_base).value & 1023u);
  uint32_t state = blockIdx.x * sm90::kPeakThreads + threadIdx.x + 1;
  for (int i = threadIdx.x; i < sm90::kPeakOperandBytes / 4; i += sm90::kPeakThreads) {
    state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator
    // Two bf16 of magnitude 0.5 to 2, signs and mantissas random.
    reinterpret_cast<uint32_t*>(smem)[i] = (state & 0x807f807fu) | 0x3f003f00u;
  }
  ptx::fence_proxy_async_shared();
  __syncthreads();

  using Descriptor = WgmmaDescriptor<64>;
  const ptx::SmemAddr base = ptx::smem_addr(smem);
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroupThreads, 0);
  const uint32_t a = Descriptor::k_major(base + warpgroup * sm90::kPeakSlabs * 64 * 128);
  const uint32_t b = Descriptor::k_major(base + 2 * sm90::kPeakSlabs * 64 * 128);
  float acc[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) acc[i] = 0.0f;
#pragma unroll 1
  for (int i = 0; i < params.iterations; ++i) {
    ptx::wgmma_fence();
#pragma unroll
    for (int slab = 0; slab < sm90::kPeakSlabs; ++slab) {
      ptx::WgmmaSs<256, Element::kBF16>::run<4>(acc, Descriptor::descriptor_at(a, slab * 64 * 128),
                                                Descriptor::descriptor_at(b, slab * 256 * 128), 1);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(acc);
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum += acc[i];
  if (sum == 12345.0f) *params.never_written = sum;  // keeps the products alive
}

}  // namespace fa4
