// What every role of the Hopper forward kernel shares: addresses, barriers, the geometry of a tile.
#pragma once

#include "kernels/geometry/part_scheduler.cuh"
#include "kernels/output/exchange_parts.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/sm90/forward/traits.h"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm90 {

// A tile travels from the scheduler to loaders and consumers.
static_assert(sizeof(QTile) == kTileBytes && sizeof(BlockRange) == kRangeBytes);

// Everything a role needs besides its tile.
template <FwdTraits T>
struct FwdContext {
  static constexpr SmemLayout kSmem = smem_layout(T);
  static constexpr auto kBarriers = offsets_of(barriers(T));

  const FwdParams& params;
  unsigned char* smem;

  __device__ ptx::SmemAddr smem_address(int offset) const { return ptx::smem_addr(smem) + offset; }
  __device__ ptx::SmemAddr barrier(int kind) const {
    return smem_address(kSmem.barriers + 8 * kBarriers.first[kind]);
  }
  __device__ Pipeline pipeline(int full_kind) const {
    return {barrier(full_kind), barrier(full_kind + 1)};
  }
  // This CTA's rank in the cluster whose CTAs share keys.
  __device__ int rank() const {
    return T.cluster > 1 ? static_cast<int>(ptx::cluster_ctarank()) : 0;
  }
  // Whether this launch's parts are put together inside clusters.
  __device__ bool exchanges_parts() const {
    return can_exchange_parts(T) && is_in_cluster(params.parts);
  }
  __device__ PartInbox inbox() const {
    unsigned char* const at = smem + kSmem.inbox;
    return {reinterpret_cast<float4*>(at), reinterpret_cast<float4*>(at + inbox_sums_bytes(T)),
            barrier(kInboxFull)};
  }
  // The ranks of sequences by length; only kernels that can rank have room for them.
  __device__ LengthRanks& ranks() const {
    return *reinterpret_cast<LengthRanks*>(smem + kSmem.ranks);
  }
  __device__ QTile& tile(int slot) const {
    return *reinterpret_cast<QTile*>(smem + kSmem.tiles + slot * tile_bytes(T));
  }
  // Those that one slice of its rows visits, for independent warpgroups.
  __device__ BlockRange& blocks_of_slice(int slot, int slice) const {
    return *reinterpret_cast<BlockRange*>(smem + kSmem.tiles + slot * tile_bytes(T) + kTileBytes +
                                          slice * kRangeBytes);
  }
};

// Named barriers: 0 is __syncthreads.
enum NamedBarrier { kPingPong = 1, kEpilogue = 4 };  // + warpgroup

// The row of the tile that is the r-th of the two whose scores and out a thread of a warpgroup has.
__device__ inline int fragment_row(int warpgroup, int lane, int r) {
  return kWarpgroupRows * warpgroup + 16 * (lane / 32) + lane % 32 / 4 + 8 * r;
}

}  // namespace fa4::sm90
