// Copies from global to shared memory that a thread starts and does not wait for.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

// cp.async.cg.shared.global [dst], [src], 16, src-size;  what is past src-size is zeros; 0: `from`
// is not read
// PTX ISA, "cp.async", sm_80
__device__ inline void cp_async_cg_16(SmemAddr to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.value), "l"(from),
               "r"(bytes)
               : "memory");
}

// cp.async.mbarrier.arrive.noinc.shared::cta.b64 [addr];  when this thread's copies are done
// PTX ISA, "cp.async.mbarrier.arrive", sm_80
__device__ inline void cp_async_mbarrier_arrive_noinc(SmemAddr barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.value)
               : "memory");
}

}  // namespace fa4::ptx
