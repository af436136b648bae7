// Stores to another CTA's shared memory that count their bytes at a barrier there.
#pragma once

#include "kernels/ptx/cluster.cuh"

namespace fa4::ptx {

// st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [addr], value, [mbar];  both in the
// same CTA; of the generic proxy
// PTX ISA, "st.async", sm_90
__device__ inline void st_async_v4(ClusterAddr to, uint32_t r0, uint32_t r1, uint32_t r2,
                                   uint32_t r3, ClusterAddr barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to.value),
      "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(barrier.value)
      : "memory");
}

// The same of floats: as bits, a product's accumulators would be copied to integers before they are
// there.
__device__ inline void st_async_v4(ClusterAddr to, float x, float y, float z, float w,
                                   ClusterAddr barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to.value),
      "f"(x), "f"(y), "f"(z), "f"(w), "r"(barrier.value)
      : "memory");
}

// mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [addr], tx_bytes;  announces
// bytes, orders nothing
// PTX ISA, "mbarrier.arrive", sm_90
__device__ inline void mbarrier_arrive_expect_tx_cluster(ClusterAddr barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                   barrier.value),
               "r"(bytes)
               : "memory");
}

}  // namespace fa4::ptx
