// Tensor memory and the fifth-generation tensor core (Blackwell).
//
// Thread t of a warp holds in register r of a 32x32b access the 32-bit cell of lane 32 (warp % 4) +
// t and column r (PTX ISA, "tcgen05 data movement shape .32x32b").
#pragma once

#include "kernels/ptx/address.cuh"
#include "kernels/ptx/tcgen05_ld_st.gen.cuh"
#include "kernels/ptx/tcgen05_mma.gen.cuh"

namespace fa4::ptx {

// tcgen05.alloc.cta_group.sync.aligned.shared::cta.b32 [dst], nCols;
// PTX ISA, "tcgen05.alloc", sm_100a
template <int kCtaGroup>
__device__ inline void tcgen05_alloc(SmemAddr address_to, uint32_t columns) {
  asm volatile(
      "tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address_to.value),
      "r"(columns), "n"(kCtaGroup)
      : "memory");
}

// tcgen05.relinquish_alloc_permit.cta_group.sync.aligned;
// PTX ISA, "tcgen05.relinquish_alloc_permit", sm_100a
template <int kCtaGroup>
__device__ inline void tcgen05_relinquish_alloc_permit() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(kCtaGroup));
}

// tcgen05.dealloc.cta_group.sync.aligned.b32 taddr, nCols;
// PTX ISA, "tcgen05.dealloc", sm_100a
template <int kCtaGroup>
__device__ inline void tcgen05_dealloc(TmemAddr address, uint32_t columns) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address.value),
               "r"(columns), "n"(kCtaGroup)
               : "memory");
}

// tcgen05.fence::before_thread_sync;  asynchronous accesses before, thread synchronisation after
// PTX ISA, "tcgen05.fence", sm_100a
__device__ inline void tcgen05_fence_before_thread_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// tcgen05.fence::after_thread_sync;  thread synchronisation before, asynchronous accesses after
// PTX ISA, "tcgen05.fence", sm_100a
__device__ inline void tcgen05_fence_after_thread_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// tcgen05.wait::ld.sync.aligned;  until this thread's loads have completed
// PTX ISA, "tcgen05.wait", sm_100a
__device__ inline void tcgen05_wait_ld() {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// tcgen05.wait::st.sync.aligned;  until this thread's stores have completed
// PTX ISA, "tcgen05.wait", sm_100a
__device__ inline void tcgen05_wait_st() {
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

// tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [mbar];  one arrival when
// all this thread's products so far have completed
// PTX ISA, "tcgen05.commit", sm_100a
__device__ inline void tcgen05_commit(SmemAddr barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   barrier.value)
               : "memory");
}

// tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [mbar],
// ctaMask;  at the barrier's offset in every CTA of the mask
// PTX ISA, "tcgen05.commit", sm_100a
__device__ inline void tcgen05_commit_multicast(SmemAddr barrier, uint16_t ctas) {
  asm volatile(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
      "[%0], %1;" ::"r"(barrier.value),
      "h"(ctas)
      : "memory");
}

// Whether a load gives the largest of its registers (sm_103a).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1030
inline constexpr bool kHasLoadMax = true;
#else
inline constexpr bool kHasLoadMax = false;
#endif

}  // namespace fa4::ptx
