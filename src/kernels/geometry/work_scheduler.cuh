// Where a forward kernel gets its work: whole tiles, or parts of their keys.
#pragma once

#include "kernels/geometry/cluster_parts.cuh"
#include "kernels/geometry/part_scheduler.cuh"
#include "kernels/geometry/tile_scheduler.cuh"

namespace fa4 {

// `kExchange`: the CTAs of a cluster may share a tile's parts.
template <int kTileRows, bool kParts, int kClusterSize = 1, bool kExchange = false>
struct WorkScheduler : TileScheduler<kTileRows, kClusterSize> {
  __device__ explicit WorkScheduler(const FwdParams& p)
      : TileScheduler<kTileRows, kClusterSize>(p.sequences, p.heads, p.schedule) {}
};
template <int kTileRows, int kClusterSize>
struct WorkScheduler<kTileRows, true, kClusterSize, false> : PartScheduler<kTileRows> {
  using PartScheduler<kTileRows>::PartScheduler;
};
template <int kTileRows, int kClusterSize>
struct WorkScheduler<kTileRows, true, kClusterSize, true> : ClusterPartScheduler<kTileRows> {
  using ClusterPartScheduler<kTileRows>::ClusterPartScheduler;
};

}  // namespace fa4
