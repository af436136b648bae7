// A work tile, and which keys its rows see.
#pragma once

#include "kernels/forward/params.h"
#include "kernels/geometry/block_range.h"

namespace fa4 {

// Some rows of one head (or of one packed group of heads) of one sequence: query rows in the
// forward.
struct WorkTile {
  int block;     // of rows, as many as the scheduler's tile has
  int head;      // of q; of k when heads are packed
  int batch;     // -1: no more work
  int offset_q;  // rows before this sequence in a packed tensor, else 0
  int offset_k;
  int seqlen_q;  // queries in use
  int seqlen_k;  // keys in use; 0 where the tile has no queries
  int part;      // of its keys, where they are cut; else 0
};

// Where TMA finds a tile's sequence: those of a packed tensor are one batch to it.
__device__ inline int batch_coordinate(const int32_t* cu_seqlens, const WorkTile& tile) {
  return cu_seqlens == nullptr ? tile.batch : 0;
}

// The packed row (position and head of a group) of a row of a tile of `tile_m` rows.
__device__ inline int packed_row_of(const WorkTile& tile, int tile_m, int row_in_tile) {
  return tile.block * tile_m + row_in_tile;
}

// Query rows of a work tile, and the blocks that they visit: all its rows on Hopper, 128 of them on
// Blackwell.
struct QTile {
  WorkTile work;
  BlockRange blocks;

  __device__ bool is_valid() const { return work.batch >= 0; }
  __device__ bool sees_keys() const { return !blocks.is_empty(); }
};

// Keys that a packed row (position and head of a group) sees.
__device__ inline KeyBounds key_bounds_of(const HeadParams& heads, const MaskParams& mask,
                                          const WorkTile& tile, int packed_row) {
  const int position = (packed_row >> heads.group_log2) + tile.seqlen_k - tile.seqlen_q;
  return key_bounds(position, tile.seqlen_k, mask.window_left, mask.window_right);
}

// The blocks that packed rows from `first` on visit: `rows` of them, or as many as the tile's
// sequence has, at least one.
__device__ inline BlockRange block_range_of_rows(const HeadParams& heads, const MaskParams& mask,
                                                 const WorkTile& tile, int first, int rows,
                                                 int tile_n) {
  const int last = min(first + rows, tile.seqlen_q << heads.group_log2) - 1;
  return block_range(key_bounds_of(heads, mask, tile, first),
                     key_bounds_of(heads, mask, tile, last), tile_n);
}

}  // namespace fa4
