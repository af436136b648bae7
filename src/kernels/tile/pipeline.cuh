// A ring of stages in shared memory between one producer and several consumers.
#pragma once

#include "kernels/ptx/mbarrier.cuh"
#include "kernels/tile/barrier_table.h"

namespace fa4 {

__device__ inline void wait(ptx::SmemAddr barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

// One thread calls it, for the table's barriers, the first of which lies at `first`.
template <int kNumKinds>
__device__ inline void initialise_barriers(const BarrierOffsets<kNumKinds>& offsets,
                                           ptx::SmemAddr first) {
#pragma unroll
  for (int kind = 0; kind < kNumKinds; ++kind) {
#pragma unroll
    for (int stage = 0; stage < offsets.stages[kind]; ++stage) {
      ptx::mbarrier_init(first + 8 * (offsets.first[kind] + stage), offsets.arrivals[kind]);
    }
  }
  ptx::fence_mbarrier_init();
}

// Which stage is next, and how often the ring went round. Producers and consumers each keep their
// own.
template <int kStages>
struct PipelineState {
  uint32_t count = 0;  // stages passed; one register
  __device__ int stage() const { return static_cast<int>(count % kStages); }
  __device__ uint32_t phase() const { return count / kStages & 1; }
  __device__ void advance() { ++count; }
};

// full[stage]: filled, its bytes included. empty[stage]: read. Who arrives, and how often, is the
// barrier table's.
struct Pipeline {
  ptx::SmemAddr full;
  ptx::SmemAddr empty;

  __device__ ptx::SmemAddr full_barrier(int stage) const { return full + 8 * stage; }
  __device__ ptx::SmemAddr empty_barrier(int stage) const { return empty + 8 * stage; }
  template <int kStages>
  __device__ void producer_acquire(const PipelineState<kStages>& s) const {
    wait(empty + 8 * s.stage(), s.phase() ^ 1);
  }
  template <int kStages>
  __device__ void consumer_wait(const PipelineState<kStages>& s) const {
    wait(full + 8 * s.stage(), s.phase());
  }
  template <int kStages>
  __device__ bool is_full(const PipelineState<kStages>& s) const {
    return ptx::mbarrier_test_wait_parity(full + 8 * s.stage(), s.phase());
  }
  // One lane of each consumer warp calls it: the table counts warps.
  template <int kStages>
  __device__ void consumer_release(const PipelineState<kStages>& s) const {
    ptx::mbarrier_arrive(empty + 8 * s.stage());
  }
};

}  // namespace fa4
