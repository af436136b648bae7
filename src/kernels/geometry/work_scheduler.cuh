// Where a forward kernel gets its work: whole tiles, or parts of their keys.
#pragma once

#include "kernels/geometry/cluster_parts.cuh"
#include "kernels/geometry/length_scheduler.cuh"
#include "kernels/geometry/part_scheduler.cuh"
#include "kernels/geometry/tile_scheduler.cuh"
#include "kernels/ptx/sync.cuh"

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

// As `Other`; with `kMayRank`, which kernels for tiles of few rows set, by the sequences' lengths
// where the launch says so. Warps 0 to kWarps - 1 have the same tiles, and meet at a named barrier
// while the first one ranks.
template <class Other, bool kParts, bool kMayRank, int kWarps = 1>
struct RankingScheduler : Other {
  __device__ RankingScheduler(const FwdParams& p, LengthRanks&, int = 0, int = 0) : Other(p) {}
};
template <class Other, bool kParts, int kWarps>
class RankingScheduler<Other, kParts, true, kWarps> {
 public:
  __device__ RankingScheduler(const FwdParams& p, LengthRanks& ranks, int warp = 0, int barrier = 0)
      : is_by_length_(p.schedule.order == TileOrder::kByLength), by_length_(p, ranks), other_(p) {
    if (!is_by_length_) return;
    if (warp == 0) by_length_.rank();
    if constexpr (kWarps > 1) ptx::barrier_sync(barrier, 32 * kWarps);
  }

  __device__ WorkTile next() { return is_by_length_ ? by_length_.next() : other_.next(); }

 private:
  bool is_by_length_;
  LengthScheduler<kParts> by_length_;
  Other other_;
};

}  // namespace fa4
