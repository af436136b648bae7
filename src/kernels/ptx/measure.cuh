// Clocks, and accesses of shared memory as bench/hopper_rates.cu times them: no kernel has these.
#pragma once

#include "kernels/ptx/cluster.cuh"

namespace fa4::ptx {

// mov.u64 d, %clock64;
// PTX ISA, "%clock64", sm_20
__device__ inline int64_t clock64() {
  int64_t d;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(d)::"memory");
  return d;
}

// mov.u64 d, %globaltimer;  nanoseconds
// PTX ISA, "%globaltimer", sm_30
__device__ inline int64_t globaltimer() {
  int64_t d;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(d)::"memory");
  return d;
}

// ld.volatile.shared.b32 d, [a];
// PTX ISA, "ld", sm_10
__device__ inline void ld_volatile_shared(uint32_t (&d)[1], SmemAddr from) {
  asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(d[0]) : "r"(from.value) : "memory");
}

// ld.volatile.shared.v2.b32 {d0, d1}, [a];
// PTX ISA, "ld", sm_10
__device__ inline void ld_volatile_shared(uint32_t (&d)[2], SmemAddr from) {
  asm volatile("ld.volatile.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(from.value)
               : "memory");
}

// ld.volatile.shared.v4.b32 {d0, d1, d2, d3}, [a];
// PTX ISA, "ld", sm_10
__device__ inline void ld_volatile_shared(uint32_t (&d)[4], SmemAddr from) {
  asm volatile("ld.volatile.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(from.value)
               : "memory");
}

// st.volatile.shared.v4.b32 [a], {b0, b1, b2, b3};
// PTX ISA, "st", sm_10
__device__ inline void st_volatile_shared(SmemAddr to, const uint4& b) {
  asm volatile("st.volatile.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to.value), "r"(b.x),
               "r"(b.y), "r"(b.z), "r"(b.w)
               : "memory");
}

// st.shared::cluster.v4.b32 [a], {b0, b1, b2, b3};
// PTX ISA, "st", sm_90
__device__ inline void st_cluster_v4(ClusterAddr to, const uint4& b) {
  asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to.value), "r"(b.x),
               "r"(b.y), "r"(b.z), "r"(b.w)
               : "memory");
}

// cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [dstMem], [srcMem], size,
// [mbar];  all multiples of 16, the barrier in the CTA of dstMem
// PTX ISA, "cp.async.bulk", sm_90
__device__ inline void cp_async_bulk_to_cluster(ClusterAddr to, SmemAddr from, uint32_t bytes,
                                                ClusterAddr barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to.value),
      "r"(from.value), "r"(bytes), "r"(barrier.value)
      : "memory");
}

// mbarrier.arrive.release.cluster.shared::cluster.b64 _, [addr];
// PTX ISA, "mbarrier.arrive", sm_90
__device__ inline void mbarrier_arrive_release_cluster(ClusterAddr barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier.value)
               : "memory");
}

// mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 waitComplete, [addr], phaseParity;
// PTX ISA, "mbarrier.try_wait", sm_90
__device__ inline bool mbarrier_try_wait_parity_acquire_cluster(SmemAddr barrier, uint32_t parity) {
  uint32_t complete;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(complete)
      : "r"(barrier.value), "r"(parity)
      : "memory");
  return complete != 0;
}

}  // namespace fa4::ptx
