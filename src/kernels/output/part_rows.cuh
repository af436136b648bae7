// What a row of a tile saw of its part of the keys, in the workspace.
#pragma once

#include "kernels/geometry/part_scheduler.cuh"
#include "kernels/output/rows.cuh"

namespace fa4 {

// Which of the workspace's rows takes a place's sums and statistics; -1: there is no such row.
template <int kTileRows>
__device__ inline int64_t part_row(const FwdParams& p, const WorkTile& tile, Place place) {
  if (place.position >= tile.seqlen_q) return -1;
  return lse_index(p.sequences, p.heads.heads_q, tile, place) * p.parts.most + tile.part -
         parts_of_tile<kTileRows>(p, tile).begin;
}

}  // namespace fa4
