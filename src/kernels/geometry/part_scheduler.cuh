// Which parts of keys a CTA takes: every gridDim.x-th, counted through the batch. Nobody counts in
// memory, so that nothing is to be zeroed before a launch.
#pragma once

#include "kernels/geometry/key_parts.h"
#include "kernels/geometry/lane_scan.cuh"
#include "kernels/geometry/sequence.cuh"
#include "kernels/geometry/work_tile.cuh"

namespace fa4 {

__device__ inline int part_keys_of(const PartParams& parts, const WorkTile& tile) {
  return part_keys_of(parts.keys, parts.most_log2, tile.seqlen_k);
}

// The blocks of a tile that its part has.
__device__ inline BlockRange blocks_of_part(BlockRange blocks, const PartParams& parts,
                                            const WorkTile& tile, int tile_n) {
  return blocks_of_part(blocks, tile.part, part_keys_of(parts, tile) / tile_n);
}

// The blocks that a tile of at most kTileRows rows visits, or its part of its keys.
template <int kTileRows, int kTileN, bool kParts>
__device__ inline BlockRange blocks_of_tile(const FwdParams& p, const WorkTile& tile) {
  const BlockRange blocks =
      block_range_of_rows(p.heads, p.mask, tile, tile.block * kTileRows, kTileRows, kTileN);
  if constexpr (!kParts) return blocks;
  return blocks_of_part(blocks, p.parts, tile, kTileN);
}

// The parts that packed rows [first_row, last_row] of a tile's sequence see.
__device__ inline PartSpan parts_of_rows(const FwdParams& p, const WorkTile& tile, int first_row,
                                         int last_row) {
  return part_span(key_bounds_of(p.heads, p.mask, tile, first_row),
                   key_bounds_of(p.heads, p.mask, tile, last_row), part_keys_of(p.parts, tile));
}

// The last packed row of a tile, which has at most kTileRows, and the parts that the tile sees.
template <int kTileRows>
__device__ inline int last_row_of(const FwdParams& p, const WorkTile& tile) {
  return min((tile.block + 1) * kTileRows, tile.seqlen_q << p.heads.group_log2) - 1;
}
template <int kTileRows>
__device__ inline PartSpan parts_of_tile(const FwdParams& p, const WorkTile& tile) {
  return parts_of_rows(p, tile, tile.block * kTileRows, last_row_of<kTileRows>(p, tile));
}

// All lanes of one warp call it together. Each lane keeps one of 32 sequences, whose parts it
// counts once: a sequence has its tiles' heads side by side, since their keys lie side by side in
// memory, then its tiles' rows, then the parts. Empty sequences and parts that no row of a sequence
// sees are not counted.
template <int kTileRows>
class PartScheduler {
 public:
  // `counts`: whether anybody will ask for parts.
  __device__ explicit PartScheduler(const FwdParams& params, bool counts = true)
      : p_(params), next_(static_cast<int32_t>(blockIdx.x)) {
    if (counts && p_.schedule.order != TileOrder::kByLength) count_parts();
  }

  // Past the last: batch -1.
  __device__ WorkTile next() {
    for (;;) {
      const WorkTile tile = tile_of(next_);
      next_ += static_cast<int32_t>(gridDim.x);
      // A tile of some of a sequence's rows may not see all that the others see.
      if (tile.batch < 0 || parts_of_tile<kTileRows>(p_, tile).contains(tile.part)) return tile;
    }
  }

 private:
  // Counts the parts of the sequence that this lane keeps.
  __device__ void count_parts() {
    const int lane = threadIdx.x % 32, batch = first_batch_ + lane;
    sequence_ = {};
    int32_t count = 0;
    wait_for_lengths(p_.sequences, p_.schedule);
    if (batch < p_.sequences.batch) {
      sequence_ = sequence_of(p_.sequences, batch);
      const int rows = sequence_.seqlen_q << p_.heads.group_log2;
      const WorkTile all{.seqlen_q = sequence_.seqlen_q, .seqlen_k = sequence_.seqlen_k};
      if (rows > 0) {
        const PartSpan span = parts_of_rows(p_, all, 0, rows - 1);
        first_part_ = span.begin;
        blocks_ = (rows + kTileRows - 1) / kTileRows;
        count = p_.heads.tile_heads * blocks_ * span.count();
      }
    }
    end_ = inclusive_sum(count);
    begin_ = end_ - count;
  }

  // Indices only grow.
  __device__ WorkTile tile_of(int32_t index) {
    for (;;) {
      const int32_t in_group = index - parts_before_;
      const int32_t all = __shfl_sync(0xffffffffu, end_, 31);
      if (in_group < all) return tile_in_group(in_group);
      parts_before_ += all;
      first_batch_ += 32;
      if (first_batch_ >= p_.sequences.batch) return {.batch = -1};
      count_parts();
    }
  }

  __device__ WorkTile tile_in_group(int32_t index) const {
    const int owner = __popc(__ballot_sync(0xffffffffu, end_ <= index));
    const auto of_owner = [&](int value) { return __shfl_sync(0xffffffffu, value, owner); };
    const auto in_sequence = static_cast<uint32_t>(index - of_owner(begin_));
    const auto heads = static_cast<uint32_t>(p_.heads.tile_heads);
    const auto blocks = static_cast<uint32_t>(of_owner(blocks_));
    const uint32_t index_in_head = in_sequence / heads, part = index_in_head / blocks;
    return {.block = static_cast<int>(index_in_head - part * blocks),
            .head = static_cast<int>(in_sequence - index_in_head * heads),
            .batch = first_batch_ + owner,
            .offset_q = of_owner(sequence_.offset_q),
            .offset_k = of_owner(sequence_.offset_k),
            .seqlen_q = of_owner(sequence_.seqlen_q),
            .seqlen_k = of_owner(sequence_.seqlen_k),
            .part = of_owner(first_part_) + static_cast<int>(part)};
  }

  const FwdParams& p_;
  int32_t next_;
  int first_batch_ = 0;  // of the 32 sequences
  int32_t parts_before_ = 0;
  // Of the 32 sequences this lane keeps one:
  Sequence sequence_{};
  int first_part_ = 0;
  int blocks_ = 1;               // of rows, each a tile
  int32_t begin_ = 0, end_ = 0;  // parts from the first of the 32 on
};

}  // namespace fa4
