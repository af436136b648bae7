// Rows of a tile in global memory: where they lie, their sinks, their lse, and copies of out where
// TMA may not store.
#pragma once

#include "kernels/geometry/sequence.cuh"
#include "kernels/geometry/work_tile.cuh"
#include "kernels/tile/pack.cuh"
#include "kernels/tile/slab.h"
#include "kernels/tile/unpack.cuh"

namespace fa4 {

// A position in a tile's sequence and a head.
struct Place {
  int position;
  int head;
};

// A position past every sequence: of a row of no head.
inline constexpr int kNowhere = 0x7fffffff;

// Which of the group a packed row belongs to; rows count from the first one of the sequence.
__device__ inline int head_of_group(const HeadParams& heads, int packed_row) {
  return packed_row & ((1 << heads.group_log2) - 1);
}
__device__ inline Place place_of(const HeadParams& heads, const WorkTile& tile, int packed_row) {
  const int head = head_of_group(heads, packed_row);
  return {head < heads.group ? packed_row >> heads.group_log2 : kNowhere,
          tile.head * heads.group + head};
}

// The sink logit of the place's head, -inf without sinks.
__device__ inline float sink_of(const ScoreParams& scores, const WorkTile& tile, Place place) {
  const bool has_sink = scores.sink != nullptr && place.position < tile.seqlen_q;
  return has_sink ? load_float(scores.sink, scores.sink_type, place.head) : -kInfinity;
}

// Where the lse of a place is, among those of all rows.
__device__ inline int64_t lse_index(const SequenceParams& sequences, int heads_q,
                                    const WorkTile& tile, Place place) {
  return sequences.cu_seqlens_q == nullptr
             ? (int64_t{tile.batch} * heads_q + place.head) * sequences.seqlen_q + place.position
             : int64_t{place.head} * sequences.total_q + tile.offset_q + place.position;
}

// `lse`: of all rows, or null.
__device__ inline void store_lse(float* lse, const SequenceParams& sequences, int heads_q,
                                 const WorkTile& tile, Place place, float value) {
  if (lse == nullptr || place.position >= tile.seqlen_q) return;
  lse[lse_index(sequences, heads_q, tile, place)] = value;
}

// Whether TMA may store rows [first_row, first_row + rows) of a tile: they end before the sequence
// does, or it clips what follows, because a sequence's end is the tensor's.
__device__ inline bool may_store_by_tma(const FwdParams& p, const WorkTile& tile, int first_row,
                                        int rows) {
  return !queries_have_tails(p.sequences) ||
         (first_row + rows - 1) >> p.heads.group_log2 < tile.seqlen_q;
}

// The first element of a place in out.
__device__ inline int64_t out_element(const FwdParams& p, const WorkTile& tile, Place place) {
  return batch_coordinate(p.sequences.cu_seqlens_q, tile) * p.output.stride_batch +
         (int64_t{tile.offset_q} + place.position) * p.output.stride_seqlen +
         place.head * p.output.stride_head;
}

// The rows of a sequence's last tile that lie inside it, 16 bytes a thread, from shared memory:
// kRows rows of kColumns, as slabs; `first_row` is the packed row of the first one.
template <int kRows, int kColumns, int kThreads>
__device__ inline void copy_rows(const FwdParams& p, const WorkTile& tile,
                                 const unsigned char* from, int first_row, int thread) {
  constexpr int kSlab = slab_columns(kColumns), kRowBytes = kSlab * kElementBytes;
  constexpr int kPieces = kRowBytes / 16, kRowPieces = kPieces * num_slabs(kColumns);
#pragma unroll 1
  for (int i = thread; i < kRows * kRowPieces; i += kThreads) {
    const int row = i / kRowPieces, slab = i / kPieces % num_slabs(kColumns);
    const int piece = i % kPieces, column = slab * kSlab + piece * 8;
    const Place place = place_of(p.heads, tile, first_row + row);
    if (place.position >= tile.seqlen_q || column >= p.output.head_dim_v) continue;
    const int64_t element = out_element(p, tile, place) + column;
    *reinterpret_cast<uint4*>(static_cast<unsigned char*>(p.output.data) +
                              element * kElementBytes) =
        *reinterpret_cast<const uint4*>(from + slab * kRows * kRowBytes + row * kRowBytes +
                                        16 * (piece ^ slab_swizzle<kSlab>(row)));
  }
}

}  // namespace fa4
