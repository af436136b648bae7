// One CTA, or a pair that shares every product: who leads, and how the two wait for each other.
#pragma once

#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/tcgen05.cuh"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm100 {

template <int kCtas>
struct CtaGroup {
  uint32_t rank;  // 0 leads: its MMA thread issues for both

  __device__ static uint32_t own_rank() { return kCtas == 1 ? 0 : ptx::cluster_ctarank(); }
  __device__ bool leads() const { return kCtas == 1 || rank == 0; }

  // Returns when the phase of this parity has completed; arrivals may come from both CTAs.
  __device__ static void wait(ptx::SmemAddr barrier, uint32_t parity) {
    if constexpr (kCtas == 1) {
      fa4::wait(barrier, parity);
    } else {
      while (!ptx::mbarrier_try_wait_parity_relaxed_cluster(barrier, parity)) {
      }
      ptx::fence_acquire_shared_cluster();
    }
  }
  // One lane calls it, to arrive at the leading CTA's barrier: that CTA issues for both. Of a pair
  // it says something of tensor memory alone, whose fences order it. (An arrival that releases all
  // memory to the cluster is a fence of the whole GPU's to ptxas.)
  __device__ static void arrive_at_leader(ptx::SmemAddr barrier) {
    if constexpr (kCtas == 1) {
      ptx::mbarrier_arrive(barrier);
    } else {
      ptx::mbarrier_arrive_relaxed_cluster(ptx::mapa(barrier, 0));
    }
  }
  // The same, where this CTA's shared memory is handed over too.
  __device__ static void release_to_leader(ptx::SmemAddr barrier) {
    if constexpr (kCtas > 1) ptx::fence_release_shared_cluster();
    arrive_at_leader(barrier);
  }
  // The MMA thread calls it: this barrier of every CTA has an arrival when its MMAs so far are
  // done.
  __device__ static void commit(ptx::SmemAddr barrier) {
    if constexpr (kCtas == 1) {
      ptx::tcgen05_commit(barrier);
    } else {
      ptx::tcgen05_commit_multicast(barrier, 0b11);
    }
  }

  // A pair allocates tensor memory together, so that both CTAs must run before either begins: every
  // thread arrives first thing and waits when it can do no more by itself.
  __device__ static void announce() {
    if constexpr (kCtas > 1) ptx::barrier_cluster_arrive_relaxed();
  }
  __device__ static void wait_for_peer() {
    if constexpr (kCtas > 1) ptx::barrier_cluster_wait();
  }

  // All threads of all CTAs meet, and see what the others did in tensor memory.
  __device__ static void sync() {
    ptx::tcgen05_fence_before_thread_sync();
    if constexpr (kCtas == 1) {
      __syncthreads();
    } else {
      ptx::barrier_cluster_arrive_release();
      ptx::barrier_cluster_wait();
    }
    ptx::tcgen05_fence_after_thread_sync();
  }

  // One warp calls it, as the manual wants: all columns of tensor memory, whose address goes to
  // `to`.
  __device__ static void allocate(ptx::SmemAddr to, int columns) {
    ptx::tcgen05_alloc<kCtas>(to, columns);
    ptx::tcgen05_relinquish_alloc_permit<kCtas>();
  }
  __device__ static void free(int columns) {
    ptx::tcgen05_dealloc<kCtas>(ptx::TmemAddr{0}, columns);
  }
};

}  // namespace fa4::sm100
