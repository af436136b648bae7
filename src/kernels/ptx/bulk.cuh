// Bulk copies of plain bytes to shared memory and from there, and sums into global memory.
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

// cp.async.bulk.global.shared::cta.bulk_group [dstMem], [srcMem], size;  all multiples of 16
// PTX ISA, "cp.async.bulk", sm_90
__device__ inline void cp_async_bulk_store(void* to, SmemAddr from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(from.value), "r"(bytes)
               : "memory");
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [dstMem], [srcMem], size;  all
// multiples of 16
// PTX ISA, "cp.reduce.async.bulk", sm_90
__device__ inline void cp_reduce_async_bulk_add_f32(float* to, SmemAddr from, uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(from.value), "r"(bytes)
      : "memory");
}

}  // namespace fa4::ptx
