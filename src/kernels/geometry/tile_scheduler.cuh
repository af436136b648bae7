// Which tiles of the output a block works on, in which order. Run by the producer warp; the tiles
// reach the consumers through shared memory.
#pragma once

#include "kernels/forward/params.h"

namespace fa4 {

// 128 or 192 query rows of one head (or of one packed group of heads) of one sequence.
struct WorkTile {
  int m_block;
  int head;      // of q; of k when heads are packed
  int batch;     // -1: no more work
  int offset_q;  // rows before this sequence in a packed tensor, else 0
  int offset_k;
  int seqlen_q;
  int seqlen_k;  // keys in use
  int unused;    // makes it 32 bytes
};

// Order of the tiles of `heads` heads with `m_blocks` each: sections of heads whose keys and values
// fit the L2 cache together; inside a section all heads' first blocks, then all heads' second ones.
// Longest first: the last rows of a causal mask see most keys, so they come first and the short
// ones fill the end. Sections differ by one head at most: a small one at the end would start long
// tiles last.
struct HeadAndBlock {
  int head;
  int m_block;
};
__device__ inline HeadAndBlock section_order(uint32_t index, uint32_t heads, uint32_t m_blocks,
                                             uint32_t sections, bool longest_first) {
  const uint32_t small = heads / sections, larger = heads % sections;  // those have one head more
  const uint32_t in_larger = larger * (small + 1) * m_blocks;
  const bool is_larger = index < in_larger;
  const uint32_t section_heads = is_larger ? small + 1 : small;
  const uint32_t from = is_larger ? index : index - in_larger;
  const uint32_t section = from / (section_heads * m_blocks);
  const uint32_t in_section = from - section * section_heads * m_blocks;
  const uint32_t first_head = (is_larger ? 0 : larger * (small + 1)) + section * section_heads;
  const uint32_t m = in_section / section_heads;
  return {static_cast<int>(first_head + in_section - m * section_heads),
          static_cast<int>(longest_first ? m_blocks - 1 - m : m)};
}

__device__ inline int clamp(int x, int low, int high) {
  return x < low ? low : x > high ? high : x;
}

// Of two counts that are not negative; stays at the largest.
constexpr int32_t add_saturated(int32_t a, int32_t b) {
  constexpr int32_t kLargest = 0x7fffffff;
  return a > kLargest - b ? kLargest : a + b;
}

// All lanes of one warp call it together. The CTAs of a cluster share their tiles; a counter serves
// clusters of one only.
template <int kTileM, int kClusterSize = 1>
class TileScheduler {
 public:
  __device__ TileScheduler(const SequenceParams& sequences, const HeadParams& heads,
                           const ScheduleParams& schedule)
      : sequences_(sequences),
        heads_(heads),
        schedule_(schedule),
        next_(static_cast<int32_t>(blockIdx.x / kClusterSize)) {
    if (schedule_.tile_counter != nullptr) claim();
  }

  __device__ WorkTile next() { return at(next_index()); }

  __device__ int32_t next_index() {
    const int32_t index = next_;
    if (schedule_.tile_counter != nullptr) {
      next_ = __shfl_sync(0xffffffffu, ticket_, 0);
      claim();
    } else {
      next_ += static_cast<int32_t>(gridDim.x / kClusterSize);
    }
    return index;
  }

  // Indices that only grow, from elsewhere. Past the last tile: batch -1. (Negative: offsets that
  // lie made so many tiles that the index ran over.)
  __device__ WorkTile at(int32_t index) {
    if (index < 0) return {.batch = -1};
    Run run = {.index = index,
               .heads = heads_.tile_heads * sequences_.batch,
               .blocks = m_blocks(sequences_.seqlen_q),
               .seqlen_q = sequences_.seqlen_q};
    if (sequences_.cu_seqlens_q != nullptr) run = find_sequence(index);
    if (run.index >= run.heads * run.blocks) return {.batch = -1};
    const HeadAndBlock at = section_order(run.index, run.heads, run.blocks, schedule_.sections,
                                          schedule_.longest_first != 0);
    const int batch = static_cast<uint32_t>(at.head) / static_cast<uint32_t>(heads_.tile_heads);
    WorkTile tile = {.m_block = at.m_block,
                     .head = at.head - batch * heads_.tile_heads,
                     .batch = run.batch + batch,
                     .offset_q = run.offset_q,
                     .seqlen_q = run.seqlen_q,
                     .seqlen_k = sequences_.seqlen_k};
    if (sequences_.cu_seqlens_k != nullptr) {
      tile.offset_k = packed_offset(sequences_.cu_seqlens_k, tile.batch, sequences_.total_k);
      tile.seqlen_k = packed_length(sequences_.cu_seqlens_k, tile.batch, sequences_.total_k,
                                    sequences_.seqlen_k);
    }
    if (sequences_.seqused_k != nullptr)
      tile.seqlen_k = clamp(sequences_.seqused_k[tile.batch], 0, tile.seqlen_k);
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

  // A tile ahead of its use, so that nobody waits for the counter.
  __device__ void claim() {
    if (threadIdx.x % 32 == 0) {
      ticket_ = static_cast<int32_t>(gridDim.x + atomicAdd(schedule_.tile_counter, 1u));
    }
  }

  __device__ int m_blocks(int seqlen_q) const {
    return ((seqlen_q << heads_.group_log2) + kTileM - 1) / kTileM;
  }

  // Walks the batch 32 sequences at a time; resumes where the last tile was, since indices only
  // grow. Past the last sequence: a run of no tiles. Offsets that lie may make more than 2^31
  // tiles: sums stay at the largest, where an index's sequence and place in it are still inside the
  // batch.
  __device__ Run find_sequence(int32_t index) {
    const int lane = threadIdx.x % 32, heads = heads_.tile_heads;
#pragma unroll 1
    for (; first_batch_ < sequences_.batch; first_batch_ += 32) {
      const int b = first_batch_ + lane;
      const int begin =
          b < sequences_.batch ? packed_offset(sequences_.cu_seqlens_q, b, sequences_.total_q) : 0;
      const int length =
          b < sequences_.batch
              ? packed_length(sequences_.cu_seqlens_q, b, sequences_.total_q, sequences_.seqlen_q)
              : 0;
      const int blocks = m_blocks(length);
      int32_t end = blocks * heads;  // inclusive sum over the lanes
#pragma unroll 1
      for (int d = 1; d < 32; d *= 2) {
        const int32_t below = __shfl_up_sync(0xffffffffu, end, d);
        if (lane >= d) end = add_saturated(end, below);
      }
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
                .offset_q = __shfl_sync(0xffffffffu, begin, owner),
                .seqlen_q = __shfl_sync(0xffffffffu, length, owner)};
      }
      tiles_before_ += all;
    }
    return {};
  }

  // Index tensors cannot be checked on the host: whatever they hold, nothing outside the tensors is
  // touched.
  __device__ static int packed_offset(const int32_t* cu_seqlens, int b, int32_t total) {
    return clamp(cu_seqlens[b], 0, total);
  }
  __device__ static int packed_length(const int32_t* cu_seqlens, int b, int32_t total,
                                      int longest) {
    const int begin = packed_offset(cu_seqlens, b, total);
    return clamp(packed_offset(cu_seqlens, b + 1, total) - begin, 0, longest);
  }

  const SequenceParams& sequences_;
  const HeadParams& heads_;
  const ScheduleParams& schedule_;
  int32_t next_;
  int32_t ticket_ = 0;  // lane 0: the tile after next_
  int first_batch_ = 0;
  int32_t tiles_before_ = 0;
};

}  // namespace fa4
