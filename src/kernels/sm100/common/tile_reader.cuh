// The sequence of work tiles as a warp reads it from the scheduler's ring in shared memory.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm100 {

// `Context` has the ring, tile_ring(), its slots, tile(slot), and their number, kTileSlots.
template <class Context>
class TileReader {
 public:
  using Tile = typename Context::Tile;

  __device__ explicit TileReader(const Context& context) : c_(context) {}

  // All lanes of a warp call it. The next tile stays in shared memory until release().
  __device__ const Tile& wait() const {
    c_.tile_ring().consumer_wait(slot_);
    return c_.tile(slot_.stage());
  }
  __device__ void release() {
    __syncwarp();
    if (ptx::elect_sync()) c_.tile_ring().consumer_release(slot_);
    slot_.advance();
  }

  __device__ Tile next() {
    const Tile tile = wait();
    release();
    return tile;
  }

 private:
  const Context& c_;
  PipelineState<Context::kTileSlots> slot_;
};

}  // namespace fa4::sm100
