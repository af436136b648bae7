// Copies from global to shared memory that a thread starts and waits for later.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

// cp.async.cg.shared.global [dst], [src], 16;
// PTX ISA, "cp.async", sm_80
__device__ inline void cp_async_cg_16(SmemAddr to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to.value), "l"(from) : "memory");
}
// cp.async.cg.shared.global [dst], [src], 16, ignore-src;  zeros, and `from` is not read, where
// `reads` is false
// PTX ISA, "cp.async", sm_80
__device__ inline void cp_async_cg_16(SmemAddr to, const void* from, bool reads) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.eq.u32 p, %2, 0;\n\t"
      "cp.async.cg.shared.global [%0], [%1], 16, p;\n\t"
      "}" ::"r"(to.value),
      "l"(from), "r"(static_cast<uint32_t>(reads))
      : "memory");
}

// cp.async.cg.shared.global [dst], [src], 16, src-size;  what is past src-size is zeros; 0: `from`
// is not read
// PTX ISA, "cp.async", sm_80
__device__ inline void cp_async_cg_16_of(SmemAddr to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.value), "l"(from),
               "r"(bytes)
               : "memory");
}

// cp.async.ca.shared.global [dst], [src], 4, src-size;  what is past src-size is zeros; 0: `from`
// is not read
// PTX ISA, "cp.async", sm_80
__device__ inline void cp_async_ca_4(SmemAddr to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to.value), "l"(from), "r"(bytes)
               : "memory");
}

// cp.async.mbarrier.arrive.noinc.shared.b64 [addr];  one arrival, when all copies that this thread
// has started are written; the barrier counts it as any other
// PTX ISA, "cp.async.mbarrier.arrive", sm_80
__device__ inline void cp_async_mbarrier_arrive_noinc(SmemAddr barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier.value) : "memory");
}

}  // namespace fa4::ptx
