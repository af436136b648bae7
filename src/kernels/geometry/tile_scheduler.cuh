// Which work tiles a CTA takes, in which order. One warp asks; the tiles reach the others through
// shared memory.
#pragma once

#include "kernels/geometry/lane_scan.cuh"
#include "kernels/geometry/section_order.h"
#include "kernels/geometry/sequence.cuh"
#include "kernels/geometry/work_tile.cuh"

namespace fa4 {

// The counts are not negative. A sum that int32_t does not hold is the largest that it does.
constexpr int32_t add_saturated(int32_t a, int32_t b) {
  constexpr int32_t kLargest = 0x7fffffff;
  return a > kLargest - b ? kLargest : a + b;
}

// All lanes of one warp call it together. The CTAs of a cluster share their tiles; a counter serves
// clusters of one only.
template <int kTileRows, int kClusterSize = 1>
class TileScheduler {
 public:
  __device__ TileScheduler(const SequenceParams& sequences, const HeadParams& heads,
                           const ScheduleParams& schedule)
      : sequences_(sequences),
        heads_(heads),
        schedule_(schedule),
        next_(static_cast<int32_t>(blockIdx.x / kClusterSize)) {}

  __device__ WorkTile next() { return tile_of(next_index()); }

  // The first comes with the CTA. A counter is asked when a tile is wanted, no sooner: one that was
  // claimed ahead is one that no idle CTA can take.
  __device__ int32_t next_index() {
    if (is_first_) {
      is_first_ = false;
    } else if (schedule_.tile_counter != nullptr) {
      next_ = claim();
    } else {
      const auto clusters = static_cast<int32_t>(gridDim.x / kClusterSize);
      const bool turns = schedule_.order == TileOrder::kThereAndBack && next_ < clusters;
      next_ += turns ? 2 * (clusters - next_) - 1 : clusters;
    }
    return next_;
  }

  // Indices that only grow, from elsewhere. Past the last tile: batch -1. (Negative: offsets that
  // lie made so many tiles that the index ran over.)
  __device__ WorkTile tile_of(int32_t index) {
    if (index < 0) return {.batch = -1};
    Run run = {.index = index,
               .heads = heads_.tile_heads * sequences_.batch,
               .blocks = num_blocks(sequences_.seqlen_q),
               .seqlen_q = sequences_.seqlen_q};
    if (sequences_.cu_seqlens_q != nullptr) run = find_sequence(index);
    if (run.index >= run.heads * run.blocks) return {.batch = -1};
    const auto [head, block] = section_order(run.index, run.heads, run.blocks, schedule_.sections,
                                             schedule_.longest_first != 0);
    const int batch = static_cast<uint32_t>(head) / static_cast<uint32_t>(heads_.tile_heads);
    WorkTile tile = {.block = block,
                     .head = head - batch * heads_.tile_heads,
                     .batch = run.batch + batch,
                     .offset_q = run.offset_q,
                     .seqlen_q = run.seqlen_q,
                     .seqlen_k = sequences_.seqlen_k};
    wait_for_lengths(sequences_, schedule_);
    if (sequences_.cu_seqlens_k != nullptr) {
      const PackedRows rows = packed_rows_of(sequences_.cu_seqlens_k, tile.batch,
                                             sequences_.total_k, sequences_.seqlen_k);
      tile.offset_k = rows.begin;
      tile.seqlen_k = rows.length;
    }
    if (sequences_.seqused_k != nullptr)
      tile.seqlen_k = clamp(sequences_.seqused_k[tile.batch], 0, tile.seqlen_k);
    if (sequences_.seqused_q != nullptr) keep_used_queries(&tile);
    return tile;
  }

 private:
  // Tiles of equal sequences in one order: a dense batch, or one packed sequence.
  struct Run {
    int32_t index;  // of the tile wanted, in the run
    int heads;
    int blocks;  // of each head
    int batch;
    int offset_q;
    int seqlen_q;
  };

  // A tile past the queries in use visits no key and stores nothing.
  __device__ void keep_used_queries(WorkTile* tile) const {
    tile->seqlen_q = clamp(sequences_.seqused_q[tile->batch], 0, tile->seqlen_q);
    if (tile->block >= num_blocks(tile->seqlen_q)) tile->seqlen_k = 0;
  }

  __device__ int32_t claim() const {
    uint32_t claimed = 0;
    if (threadIdx.x % 32 == 0) claimed = gridDim.x + atomicAdd(schedule_.tile_counter, 1u);
    return static_cast<int32_t>(__shfl_sync(0xffffffffu, claimed, 0));
  }

  __device__ int num_blocks(int seqlen_q) const {
    return ((seqlen_q << heads_.group_log2) + kTileRows - 1) / kTileRows;
  }

  // Walks the batch 32 sequences at a time; resumes where the last tile was, since indices only
  // grow. Past the last sequence: a run of no tiles. Offsets that lie may make more than 2^31
  // tiles: sums stay at the largest, where an index's sequence and place in it are still inside the
  // batch.
  __device__ Run find_sequence(int32_t index) {
    const int lane = threadIdx.x % 32, heads = heads_.tile_heads;
    wait_for_lengths(sequences_, schedule_);
#pragma unroll 1
    for (; first_batch_ < sequences_.batch; first_batch_ += 32) {
      const int b = first_batch_ + lane;
      const PackedRows rows =
          b < sequences_.batch ? packed_queries_of(sequences_, b) : PackedRows{};
      const int blocks = num_blocks(rows.length);
      const int32_t end = inclusive_scan(blocks * heads, add_saturated);
      const int32_t all = __shfl_sync(0xffffffffu, end, 31);
      const int32_t in_group = index - tiles_before_;
      if (in_group < all) {
        const int owner = __popc(__ballot_sync(0xffffffffu, end <= in_group));
        const int owner_blocks = __shfl_sync(0xffffffffu, blocks, owner);
        const int32_t start = __shfl_sync(0xffffffffu, end, owner) - owner_blocks * heads;
        return {.index = in_group - start,
                .heads = heads,
                .blocks = owner_blocks,
                .batch = first_batch_ + owner,
                .offset_q = __shfl_sync(0xffffffffu, rows.begin, owner),
                .seqlen_q = __shfl_sync(0xffffffffu, rows.length, owner)};
      }
      tiles_before_ += all;
    }
    return {};
  }

  const SequenceParams& sequences_;
  const HeadParams& heads_;
  const ScheduleParams& schedule_;
  int32_t next_;
  bool is_first_ = true;
  int first_batch_ = 0;
  int32_t tiles_before_ = 0;
};

}  // namespace fa4
