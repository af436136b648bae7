// Barriers in shared memory that count arrivals and bytes.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

// mbarrier.init.shared::cta.b64 [addr], count;
// PTX ISA, "mbarrier.init", sm_80
__device__ inline void mbarrier_init(SmemAddr barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.value), "r"(count)
               : "memory");
}

// mbarrier.arrive.shared::cta.b64 _, [addr];  (release, cta)
// PTX ISA, "mbarrier.arrive", sm_80
__device__ inline void mbarrier_arrive(SmemAddr barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier.value) : "memory");
}

// mbarrier.arrive.expect_tx.shared::cta.b64 _, [addr], tx_bytes;
// PTX ISA, "mbarrier.arrive", sm_90
__device__ inline void mbarrier_arrive_expect_tx(SmemAddr barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.value),
               "r"(bytes)
               : "memory");
}

// mbarrier.try_wait.parity.shared::cta.b64 waitComplete, [addr], phaseParity;  (acquire, cta)
// PTX ISA, "mbarrier.try_wait", sm_90
__device__ inline bool mbarrier_try_wait_parity(SmemAddr barrier, uint32_t parity) {
  uint32_t complete;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(complete)
      : "r"(barrier.value), "r"(parity)
      : "memory");
  return complete != 0;
}

// mbarrier.test_wait.parity.shared::cta.b64 waitComplete, [addr], phaseParity;  the same, at once
// PTX ISA, "mbarrier.test_wait", sm_80
__device__ inline bool mbarrier_test_wait_parity(SmemAddr barrier, uint32_t parity) {
  uint32_t complete;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(complete)
      : "r"(barrier.value), "r"(parity)
      : "memory");
  return complete != 0;
}

// fence.mbarrier_init.release.cluster;  makes initialised barriers visible to the async proxy
// PTX ISA, "fence.mbarrier_init", sm_90
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace fa4::ptx
