// Where a forward kernel gets its work: whole tiles, or parts of their keys.
#pragma once

#include "kernels/geometry/part_scheduler.cuh"
#include "kernels/geometry/tile_scheduler.cuh"

namespace fa4 {

template <int kTileRows, bool kParts, int kClusterSize = 1>
struct WorkScheduler : TileScheduler<kTileRows, kClusterSize> {
  __device__ explicit WorkScheduler(const FwdParams& p)
      : TileScheduler<kTileRows, kClusterSize>(p.sequences, p.heads, p.schedule) {}
};
template <int kTileRows, int kClusterSize>
struct WorkScheduler<kTileRows, true, kClusterSize> : PartScheduler<kTileRows> {
  using PartScheduler<kTileRows>::PartScheduler;
};

}  // namespace fa4
