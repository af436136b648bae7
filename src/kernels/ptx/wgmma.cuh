// Warpgroup matrix multiply (Hopper): a 64 x N float accumulator in the registers of 128 threads.
//
// Thread t of a warpgroup holds, of row 16 (t / 32) + (t % 32) / 4 + 8 r and column 8 j + 2 (t % 4)
// + c, the element d[4 j + 2 r + c] (PTX ISA, "wgmma register fragment layouts").
#pragma once

#include "kernels/ptx/wgmma_rs.gen.cuh"
#include "kernels/ptx/wgmma_ss.gen.cuh"

namespace fa4::ptx {

// wgmma.fence.sync.aligned;  orders register accesses before the wgmmas that follow
// PTX ISA, "wgmma.fence", sm_90a
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group.sync.aligned;
// PTX ISA, "wgmma.commit_group", sm_90a
__device__ inline void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// wgmma.wait_group.sync.aligned N;  until at most N groups are pending
// PTX ISA, "wgmma.wait_group", sm_90a
template <int kPending>
__device__ inline void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// No instruction: keeps the compiler from moving accesses of these registers across this point.
template <int kCount>
__device__ inline void fence_registers(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// mov.b32 d, a;  of an operand, which PTX lets nobody read while a product of it is under way
// PTX ISA, "wgmma.mma_async", sm_90a
template <int kSteps>
__device__ inline void copy_registers(uint32_t (&d)[kSteps][4], const uint32_t (&a)[kSteps][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kSteps; ++i) {
    asm volatile("mov.b32 %0, %1;" : "=r"(d[i / 4][i % 4]) : "r"(a[i / 4][i % 4]));
  }
}

}  // namespace fa4::ptx
