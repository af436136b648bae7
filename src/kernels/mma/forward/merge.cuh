// The end of a tile: what the warps of the same rows saw of the keys is put together, in their
// order, and stored.
#pragma once

#include "kernels/mma/forward/bytes.cuh"
#include "kernels/mma/forward/context.cuh"
#include "kernels/output/part_rows.cuh"
#include "kernels/output/rows.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/softmax/finish_row.cuh"
#include "kernels/softmax/fragment_softmax.cuh"

namespace fa4::mma {

template <FwdTraits T>
class MergedTile {
 public:
  __device__ MergedTile(const FwdContext<T>& context, const WorkTile& tile, int warp)
      : c(context),
        tile(tile),
        warp(warp),
        lane(static_cast<int>(threadIdx.x % 32)),
        stats(reinterpret_cast<PartStats*>(context.smem + context.kSmem.stats)),
        sums(context.smem + context.kSmem.merge) {}

  // Every consumer warp calls it. `unit`: what its O is in.
  template <class Softmax>
  __device__ void finish(const float (&rO)[T.head_dim_v / 2], float unit, const Softmax& softmax) {
    const int g = lane / 4, own = lane & 1;
    const RowPair scale_log2 = RowPair::both(c.params.scores.scale_log2);
    const typename Softmax::Total total = softmax.total(own, scale_log2);
    if (lane % 4 < 2) stats[warp * kWarpRows + g + 8 * own] = {total.max_log2, total.sum};
    meet();
    float weights[2];  // of this warp's share, for the thread's two rows
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp % T.row_warps * kWarpRows + g + 8 * r;
      weights[r] =
          weight_of(stats[warp * kWarpRows + g + 8 * r].max_log2, total_of(row).max_log2) * unit;
    }
    find_rows();
#pragma unroll
    for (int slice = 0; slice < T.head_dim_v / kMergeColumns; ++slice) {
      if (slice > 0) meet();
      write(rO, weights, slice);
      meet();
#pragma unroll
      for (int i = 0; i < kRows; ++i) store(i, slice);
    }
  }

 private:
  using Values = ValuePieces<T.head_dim_v>;
  static constexpr int kThreads = 32 * consumer_warps(T);
  static constexpr int kRowBytes = kMergeColumns * 4;
  // A thread stores two columns of each of its rows of a slice.
  static constexpr int kRowThreads = kMergeColumns / 2;
  static constexpr int kRowsAtOnce = kThreads / kRowThreads;
  static constexpr int kRows = tile_m(T) / kRowsAtOnce;
  static_assert(kRows * kRowsAtOnce == tile_m(T));

  __device__ static void meet() { ptx::barrier_sync(kMerge, kThreads); }

  // The statistics of the tile's row `row`, put together over the warps that share it.
  __device__ PartStats total_of(int row) const {
    const PartStats* of_row = stats + row;  // rows of a warp lie as those of the tile do
    PartStats total{-kInfinity, 0.0f};
#pragma unroll
    for (int i = 0; i < sharers(T); ++i) {
      total.max_log2 = ptx::max_nan(total.max_log2, of_row[i * tile_m(T)].max_log2);
    }
#pragma unroll
    for (int i = 0; i < sharers(T); ++i) {
      const PartStats share = of_row[i * tile_m(T)];
      total.sum = fmaf(share.sum, weight_of(share.max_log2, total.max_log2), total.sum);
    }
    return total;
  }

  __device__ int row_of(int i) const {
    return static_cast<int>(threadIdx.x) / kRowThreads + i * kRowsAtOnce;
  }

  // Where this thread's rows go, what of them goes with them, and their statistics.
  __device__ void find_rows() {
    const FwdParams& p = c.params;
    const bool first = threadIdx.x % kRowThreads == 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int packed_row = packed_row_of(tile, tile_m(T), row_of(i));
      const Place place = place_of(p.heads, tile, packed_row);
      const PartStats total = total_of(row_of(i));
      if constexpr (T.parts) {
        const int64_t row = part_row<tile_m(T)>(p, tile, place);
        at[i] = row * T.head_dim_v;
        if (first && row >= 0) p.parts.stats[row] = total;
      } else {
        const KeyBounds bounds = key_bounds_of(p.heads, p.mask, tile, packed_row);
        const FinishedRow end = finish_row(total.sum, total.max_log2, !bounds.is_empty(),
                                           sink_of(p.scores, tile, place));
        factors[i] = end.factor;
        at[i] = place.position < tile.seqlen_q ? out_element(p, tile, place) : -1;
        if (first) store_lse(p.output.lse, p.sequences, p.heads.heads_q, tile, place, end.lse);
      }
    }
  }

  // This warp's share of a slice: four tiles' columns, of which the thread has two. Neighbouring
  // rows have their pieces of four columns permuted, so that they lie in other banks.
  __device__ void write(const float (&rO)[T.head_dim_v / 2], const float (&weights)[2],
                        int slice) const {
    const int g = lane / 4, t = lane % 4;
    const int first = slice / Values::kWords * Values::kTiles + slice % Values::kWords * 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      unsigned char* row = sums + (warp * kWarpRows + g + 8 * r) * kRowBytes;
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const float* o = rO + 4 * first + 2 * r + column;
        *reinterpret_cast<float4*>(row + 16 * ((2 * t + column) ^ (g & 1))) =
            float4{o[0] * weights[r], o[4] * weights[r], o[8] * weights[r], o[12] * weights[r]};
      }
    }
  }

  // Two columns of the thread's i-th row: the sum of the warps' shares, in their order.
  __device__ void store(int i, int slice) const {
    const int pair = threadIdx.x % kRowThreads, piece = pair / 2, row = row_of(i);
    const unsigned char* from = sums + row * kRowBytes + 16 * (piece ^ (row & 1)) + pair % 2 * 8;
    float2 sum{};
#pragma unroll
    for (int share = 0; share < sharers(T); ++share) {
      const float2 read = *reinterpret_cast<const float2*>(from + share * tile_m(T) * kRowBytes);
      sum.x += read.x;
      sum.y += read.y;
    }
    const int column = slice / Values::kWords * Values::kRowBytes + piece * Values::kTiles +
                       slice % Values::kWords * 4 + pair % 2 * 2;
    if (at[i] < 0) return;
    if constexpr (T.parts) {
      *reinterpret_cast<float2*>(c.params.parts.sums + at[i] + column) = sum;
    } else {
      if (column >= c.params.output.head_dim_v) return;
      const float factor = factors[i];
      static_cast<uint32_t*>(c.params.output.data)[(at[i] + column) / 2] =
          factor == 0.0f ? 0 : pack<T.element>(sum.x * factor, sum.y * factor);
    }
  }

  const FwdContext<T>& c;
  const WorkTile& tile;
  const int warp;
  const int lane;
  PartStats* stats;  // [warp][16 rows]
  unsigned char* sums;
  int64_t at[kRows];  // -1 and below: the row does not exist
  float factors[kRows];
};

}  // namespace fa4::mma
