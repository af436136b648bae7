// The scheduler warp: which tile comes next, and the blocks that its Q tiles visit.
#pragma once

#include "kernels/sm100/fwd_context.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
__device__ inline BlockRange block_range_of(const FwdParams& p, const WorkTile& tile, int q_tile) {
  if (!has_rows<T>(p, tile, q_tile)) return {};
  const int first = first_row_of_group<T>(tile, q_tile), rows = tile.seqlen_q << p.group_log2;
  const int last = min(first + T.cta_group * kTileRows, rows) - 1;
  const BlockRange range = block_range(bounds_of(p, tile, first), bounds_of(p, tile, last), kTileN);
  return range.n_block_max > range.n_block_min ? range : BlockRange{};
}

template <FwdTraits T>
__device__ inline void schedule(const Context<T>& c) {
  TileScheduler<tile_m(T), T.cta_group> scheduler(c.params);
  PipelineState<kTileSlots> slot;
  const Pipeline tiles = c.pipeline(kTileFull);
  bool valid;
#pragma unroll 1
  do {
    Tile tile{scheduler.next(), {}};
    valid = tile.is_valid();
    if (valid) {
#pragma unroll
      for (int i = 0; i < T.q_tiles; ++i) {
        tile.blocks[i] = block_range_of<T>(c.params, tile.work, i);
      }
    }
    tiles.producer_acquire(slot);
    if (ptx::elect_sync()) {
      c.tile(slot.stage()) = tile;
      ptx::mbarrier_arrive(tiles.full_barrier(slot.stage()));
    }
    __syncwarp();
    slot.advance();
  } while (valid);
}

}  // namespace fa4::sm100
