// Parts of a tile's keys that the CTAs of one cluster take, one each: the CTA of rank r the r-th.
#pragma once

#include "kernels/geometry/part_scheduler.cuh"

namespace fa4 {

__device__ inline bool is_in_cluster(const PartParams& parts) { return parts.cluster_log2 > 0; }

// This CTA's rank in its cluster; clusters lie along x, the grid's only axis.
__device__ inline int rank_in_cluster(const PartParams& parts) {
  return static_cast<int>(blockIdx.x) & ((1 << parts.cluster_log2) - 1);
}

// The tile of this CTA's cluster, without a part; batch -1: its sequence has no such rows. Tiles
// are numbered by the greatest lengths, so that no cluster looks at other sequences than its own.
template <int kTileRows>
__device__ inline WorkTile tile_of_cluster(const FwdParams& p) {
  const int index = static_cast<int>(blockIdx.x) >> p.parts.cluster_log2;
  const int heads = p.heads.tile_heads, index_in_head = index / heads;
  const int rows = p.sequences.seqlen_q << p.heads.group_log2;
  const int blocks = (rows + kTileRows - 1) / kTileRows;
  const int batch = index_in_head / blocks, block = index_in_head - batch * blocks;
  wait_for_lengths(p.sequences, p.schedule);
  const Sequence s = sequence_of(p.sequences, batch);
  const bool exists = block * kTileRows < s.seqlen_q << p.heads.group_log2;
  return {.block = block,
          .head = index - index_in_head * heads,
          .batch = exists ? batch : -1,
          .offset_q = s.offset_q,
          .offset_k = s.offset_k,
          .seqlen_q = s.seqlen_q,
          .seqlen_k = s.seqlen_k};
}

// Hands out this CTA's part of its cluster's tile, then none; without clusters parts by stride.
template <int kTileRows>
class ClusterPartScheduler {
 public:
  __device__ explicit ClusterPartScheduler(const FwdParams& params)
      : p_(params), by_stride_(params, !is_in_cluster(params.parts)) {}

  // Past the last: batch -1.
  __device__ WorkTile next() {
    if (!is_in_cluster(p_.parts)) return by_stride_.next();
    WorkTile tile{.batch = -1};
    if (!is_first_) return tile;
    is_first_ = false;
    tile = tile_of_cluster<kTileRows>(p_);
    if (tile.batch < 0) return tile;
    const int keys = part_keys_of(p_.parts, tile);
    const KeyBounds first = key_bounds_of(p_.heads, p_.mask, tile, tile.block * kTileRows);
    const KeyBounds last = key_bounds_of(p_.heads, p_.mask, tile, last_row_of<kTileRows>(p_, tile));
    tile.part = part_of_key(first.begin, keys) + rank_in_cluster(p_.parts);
    if (!sees_part(first, last, tile.part, keys)) tile.batch = -1;
    return tile;
  }

 private:
  const FwdParams& p_;
  PartScheduler<kTileRows> by_stride_;
  bool is_first_ = true;
};

}  // namespace fa4
