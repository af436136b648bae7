// Tiles by how many keys they have, the most first, dealt to the CTAs there and back: whose first
// tile is the longest has the shortest of the second round. Lengths are in device memory alone, so
// that each CTA ranks them for itself; a counter would have to be zeroed before the launch.
#pragma once

#include "kernels/geometry/lane_scan.cuh"
#include "kernels/geometry/length_ranks.h"
#include "kernels/geometry/sequence.cuh"
#include "kernels/geometry/work_tile.cuh"
#include "kernels/ptx/global.cuh"

namespace fa4 {

// For at most kMostRanked sequences, whose rows of a head are one tile, and whose keys begin with
// the first. Where keys are cut (`kParts`, at multiples of the plan's length) whole parts come
// first, since none is longer, then what is left of each sequence; else that is all its keys.
//
// All lanes of one warp call it together, or several warps, each of which has the same tiles.
template <bool kParts>
class LengthScheduler {
 public:
  __device__ LengthScheduler(const FwdParams& params, LengthRanks& ranks)
      : p_(params), ranks_(ranks) {}

  // One warp calls it before any warp asks for a tile; the others wait until its writes are visible
  // (RankingScheduler).
  __device__ void rank() {
    wait_for_lengths(p_.sequences, p_.schedule);
    prefetch_lengths();
    const int lane = threadIdx.x % 32, batch = p_.sequences.batch;
    int whole_parts = 0, rests = 0;
#pragma unroll 1
    for (int first = 0; first < batch; first += 32) count(first + lane, &whole_parts, &rests);
    ranks_.whole_parts = whole_parts;
    ranks_.rests = rests;
    __syncwarp();
#pragma unroll 1
    for (int b = lane; b < batch; b += 32) ranks_.sorted[rank_of(ranks_.order[b])] = b;
    __syncwarp();
  }

  // Past the last: batch -1. Half of the CTAs go backwards, so that the short tiles, which wait for
  // memory's latency, run beside long ones, which wait for its bandwidth; those that have the heads
  // of one sequence, side by side in memory, go one way.
  __device__ WorkTile next() {
    const int ctas = static_cast<int>(gridDim.x), cta = static_cast<int>(blockIdx.x);
    const int heads = p_.heads.tile_heads;
    const int tiles = (ranks_.whole_parts + ranks_.rests) * heads;
    const int rounds = (tiles + ctas - 1) / ctas;
    const bool backwards = cta / heads % 2 != 0;
    while (step_ < rounds) {
      const int round = backwards ? rounds - 1 - step_ : step_;
      const int index = round * ctas + (round % 2 == 0 ? cta : ctas - 1 - cta);
      ++step_;
      if (index < tiles) return tile_of(index);
    }
    return {.batch = -1};
  }

 private:
  static constexpr uint32_t kAllLanes = 0xffffffffu;

  __device__ WorkTile tile_of(int index) const {
    const int heads = p_.heads.tile_heads;
    const int index_in_head = static_cast<uint32_t>(index) / static_cast<uint32_t>(heads);
    const int rest = index_in_head - ranks_.whole_parts;
    const int batch = rest < 0 ? sequence_of_part(index_in_head) : ranks_.sorted[rest];
    int part = 0;
    if constexpr (kParts) {
      const int first_part = batch > 0 ? ranks_.parts_end[batch - 1] : 0;
      part = (rest < 0 ? index_in_head : ranks_.parts_end[batch]) - first_part;
    }
    const Sequence s = sequence_of(p_.sequences, batch);
    return {.block = 0,
            .head = index - index_in_head * heads,
            .batch = batch,
            .offset_q = s.offset_q,
            .offset_k = s.offset_k,
            .seqlen_q = s.seqlen_q,
            .seqlen_k = s.seqlen_k,
            .part = part};
  }

  // Prefetches the lengths of all sequences, 32 to a cache line, so that the reads after it wait
  // for memory once.
  __device__ void prefetch_lengths() const {
    const SequenceParams& s = p_.sequences;
    const int first = 32 * (threadIdx.x % 32);
    if (first >= s.batch) return;
    const int32_t* const kinds[] = {s.cu_seqlens_q, s.cu_seqlens_k, s.seqused_q, s.seqused_k};
#pragma unroll
    for (const int32_t* lengths : kinds) {
      if (lengths != nullptr) ptx::prefetch_l1(lengths + first);
    }
  }

  // Notes how many whole parts there are up to sequence `batch`, itself among them, and the order
  // of its rest; a number past the batch adds none.
  __device__ void count(int batch, int* whole_parts, int* rests) {
    const int keys = batch < p_.sequences.batch ? keys_of(batch) : -1;
    const bool has_rest = keys >= (kParts ? 1 : 0);
    const int whole = kParts && has_rest ? (keys - 1) / p_.parts.keys : 0;
    ranks_.order[batch] = rank_order(batch, has_rest, kParts ? keys - whole * p_.parts.keys : keys);
    *rests += __popc(__ballot_sync(kAllLanes, has_rest));
    if constexpr (!kParts) return;
    const int end = *whole_parts + inclusive_sum(whole);
    ranks_.parts_end[batch] = end;
    *whole_parts = __shfl_sync(kAllLanes, end, 31);
  }

  // How many keys the rows of sequence `batch` see; -1 where it has no rows.
  __device__ int keys_of(int batch) const {
    const Sequence s = sequence_of(p_.sequences, batch);
    if (s.seqlen_q == 0) return -1;
    const WorkTile tile{.seqlen_q = s.seqlen_q, .seqlen_k = s.seqlen_k};
    const int last_row = (s.seqlen_q << p_.heads.group_log2) - 1;
    return max(0, key_bounds_of(p_.heads, p_.mask, tile, last_row).end);
  }

  // How many sequences come before one of this order. Orders differ.
  __device__ int rank_of(uint32_t order) const {
    const auto* others = reinterpret_cast<const uint4*>(ranks_.order);
    int rank = 0;
#pragma unroll 4
    for (int i = 0; i < (p_.sequences.batch + 31) / 32 * 8; ++i) {
      const uint4 four = others[i];
      rank += (four.x > order) + (four.y > order) + (four.z > order) + (four.w > order);
    }
    return rank;
  }

  // The sequence to which whole part `part` of a head belongs.
  __device__ int sequence_of_part(int part) const {
    int before = 0;
#pragma unroll 1
    for (int first = 0; first < p_.sequences.batch; first += 32) {
      const int end = ranks_.parts_end[first + threadIdx.x % 32];
      before += __popc(__ballot_sync(kAllLanes, end <= part));
    }
    return before;
  }

  const FwdParams& p_;
  LengthRanks& ranks_;
  int step_ = 0;  // of as many as there are rounds
};

}  // namespace fa4
