// CTAs of a cluster: ranks, each other's shared memory, barriers between them.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

// A byte address in the shared memory of any CTA of the cluster.
struct ClusterAddr {
  uint32_t value;
};

// mov.u32 d, %cluster_ctarank;
// PTX ISA, "%cluster_ctarank", sm_90
__device__ inline uint32_t cluster_ctarank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// mapa.shared::cluster.u32 d, a, b;  the same place in the CTA of rank b
// PTX ISA, "mapa", sm_90
__device__ inline ClusterAddr mapa(SmemAddr address, uint32_t rank) {
  ClusterAddr d;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d.value) : "r"(address.value), "r"(rank));
  return d;
}

// mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [addr];  orders no memory by itself
// PTX ISA, "mbarrier.arrive", sm_90
__device__ inline void mbarrier_arrive_relaxed_cluster(ClusterAddr barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier.value)
               : "memory");
}

// mbarrier.arrive.shared::cluster.b64 _, [addr];  .release for this CTA's threads; those of another
// CTA learn that it came, which is enough where they wait for reads to be over
// PTX ISA, "mbarrier.arrive", sm_90
__device__ inline void mbarrier_arrive_cluster(ClusterAddr barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier.value) : "memory");
}

// mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 waitComplete, [addr], phaseParity;
// orders no memory by itself
// PTX ISA, "mbarrier.try_wait", sm_90
__device__ inline bool mbarrier_try_wait_parity_relaxed_cluster(SmemAddr barrier, uint32_t parity) {
  uint32_t complete;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(complete)
      : "r"(barrier.value), "r"(parity)
      : "memory");
  return complete != 0;
}

// fence.release.sync_restrict::shared::cta.cluster;  of this CTA's shared memory alone
// PTX ISA, "fence", sm_90
__device__ inline void fence_release_shared_cluster() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
}

// fence.acquire.sync_restrict::shared::cluster.cluster;  of the cluster's shared memory alone
// PTX ISA, "fence", sm_90
__device__ inline void fence_acquire_shared_cluster() {
  asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

// st.shared::cluster.u32 [a], b;
// PTX ISA, "st", sm_90
__device__ inline void st_cluster(ClusterAddr to, uint32_t b) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to.value), "r"(b) : "memory");
}

// barrier.cluster.arrive.release.aligned;  all threads of all CTAs
// PTX ISA, "barrier.cluster", sm_90
__device__ inline void barrier_cluster_arrive_release() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// barrier.cluster.arrive.relaxed.aligned;  orders no memory
// PTX ISA, "barrier.cluster", sm_90
__device__ inline void barrier_cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// barrier.cluster.wait.acquire.aligned;  each thread between any two of its arrivals
// PTX ISA, "barrier.cluster", sm_90
__device__ inline void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace fa4::ptx
