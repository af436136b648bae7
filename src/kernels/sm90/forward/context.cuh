// What every role of the Hopper forward kernel shares: addresses, barriers, the geometry of a tile.
#pragma once

#include "kernels/forward/params.h"
#include "kernels/geometry/block_range.h"
#include "kernels/geometry/tile_scheduler.cuh"
#include "kernels/sm90/forward/traits.h"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm90 {

// A tile as it travels from the producer to the consumers.
struct Tile {
  WorkTile work;
  BlockRange blocks;
};
static_assert(sizeof(Tile) == kTileBytes);

// Everything a role needs besides its tile.
template <FwdTraits T>
struct Context {
  static constexpr SmemLayout kSmem = smem_layout(T);
  static constexpr auto kBarriers = places_of(barriers(T));

  const FwdParams& params;
  unsigned char* smem;

  __device__ ptx::SmemAddr smem_address(int offset) const { return ptx::smem_addr(smem) + offset; }
  __device__ ptx::SmemAddr barrier(int kind) const {
    return smem_address(kSmem.barriers + 8 * kBarriers.first[kind]);
  }
  __device__ Pipeline pipeline(int full_kind) const {
    return {barrier(full_kind), barrier(full_kind + 1)};
  }
  __device__ Tile& tile(int slot) const {
    return *reinterpret_cast<Tile*>(smem + kSmem.tiles + slot * kTileBytes);
  }
};

// Named barriers: 0 is __syncthreads.
enum NamedBarrier { kPingPong = 1, kEpilogue = 4 };  // + warpgroup

// Position in the sequence of a row of the tile (rows of packed heads share one).
template <FwdTraits T>
__device__ inline int row_of(const HeadParams& heads, const WorkTile& tile, int row_in_tile) {
  return (tile.block * T.tile_m + row_in_tile) >> heads.group_log2;
}

template <FwdTraits T>
__device__ inline KeyBounds bounds_of(const HeadParams& heads, const MaskParams& mask,
                                      const WorkTile& tile, int row_in_tile) {
  const int position = row_of<T>(heads, tile, row_in_tile) + tile.seqlen_k - tile.seqlen_q;
  return key_bounds(position, tile.seqlen_k, mask.window_left, mask.window_right);
}

template <FwdTraits T>
__device__ inline BlockRange blocks_of(const HeadParams& heads, const MaskParams& mask,
                                       const WorkTile& tile) {
  const int rows = (tile.seqlen_q << heads.group_log2) - tile.block * T.tile_m;
  const int last = rows < T.tile_m ? rows - 1 : T.tile_m - 1;
  return block_range(bounds_of<T>(heads, mask, tile, 0), bounds_of<T>(heads, mask, tile, last),
                     T.tile_n);
}

}  // namespace fa4::sm90
