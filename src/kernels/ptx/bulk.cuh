// Bulk copies of plain bytes to shared memory; additions to global memory.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [dstMem], [srcMem], size,
// [mbar];  all multiples of 16
// PTX ISA, "cp.async.bulk", sm_90
__device__ inline void cp_async_bulk_load(SmemAddr to, const void* from, uint32_t bytes,
                                          SmemAddr barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to.value),
      "l"(from), "r"(bytes), "r"(barrier.value)
      : "memory");
}

// red.relaxed.gpu.global.add.v4.f32 [a], {b0, b1, b2, b3};
// PTX ISA, "red", sm_90
__device__ inline void red_add_v4(float* to, float b0, float b1, float b2, float b3) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(b0),
               "f"(b1), "f"(b2), "f"(b3)
               : "memory");
}

}  // namespace fa4::ptx
