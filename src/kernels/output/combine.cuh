// Out and lse of rows whose keys were cut into parts, in one order, so that the bits depend on
// nothing but the row's own parts: a CTA a row, of which a warp takes every eighth part, or, where
// rows have few parts or are work for all SMs by themselves, a warp a row, in an eighth of the
// CTAs.
//
// A lane takes four columns side by side. Parts that no row of the tile sees, and those past the
// sequence's end, were written by nobody and are read by nobody.
#pragma once

#include "kernels/output/part_rows.cuh"
#include "kernels/output/traits.h"
#include "kernels/ptx/grid_dependency.cuh"

namespace fa4 {
namespace combine {

static_assert(sizeof(PartStats) == kPartStatsBytes);

inline constexpr int kAtOnce = 4;  // parts of a warp that are under way together

// Which row a CTA works on; its tile is that of the kernel that wrote the parts.
struct Row {
  WorkTile tile;
  Place place;
  int packed_row;
  __device__ bool exists() const { return place.position < tile.seqlen_q; }
};
__device__ inline Row row_of(const FwdParams& p, int index) {
  const int heads = p.heads.heads_q, index_in_head = index / heads,
            head = index - index_in_head * heads;
  const int batch = index_in_head / p.sequences.seqlen_q;
  const int position = index_in_head - batch * p.sequences.seqlen_q;
  const Sequence s = sequence_of(p.sequences, batch);
  const int tile_head = head / p.heads.group;
  const int packed_row = (position << p.heads.group_log2) + (head - tile_head * p.heads.group);
  return {.tile = {.block = packed_row / p.parts.tile_rows,
                   .head = tile_head,
                   .batch = batch,
                   .offset_q = s.offset_q,
                   .offset_k = s.offset_k,
                   .seqlen_q = s.seqlen_q,
                   .seqlen_k = s.seqlen_k},
          .place = {position, head},
          .packed_row = packed_row};
}

__device__ inline int count_parts(const FwdParams& p, const Row& row) {
  const int first = row.tile.block * p.parts.tile_rows;
  const int rows = row.tile.seqlen_q << p.heads.group_log2;
  return parts_of_rows(p, row.tile, first, min(first + p.parts.tile_rows, rows) - 1).count();
}

// A lane's columns of a part's sums, row `row` of the workspace, from `column` on; of a part that
// is not there zeros.
template <int kPieces>
__device__ inline void load_sums(const PartParams& parts, int64_t row, bool is_there, int column,
                                 float4 (&sums)[kPieces]) {
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int at = column + kPieceColumns * piece;
    sums[piece] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (is_there && at < parts.columns) {
      sums[piece] = *reinterpret_cast<const float4*>(parts.sums + row * parts.columns + at);
    }
  }
}

// Some of a warp's parts: from `first` on every kCombineWarps-th.
template <int kPieces>
struct Group {
  PartStats stats[kAtOnce];
  float4 sums[kAtOnce][kPieces];

  __device__ void load(const PartParams& parts, int64_t row, int first, int count, int column) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int part = first + i * kCombineWarps;
      stats[i] = {-kInfinity, 0.0f};
      if (part < count) stats[i] = parts.stats[row + part];
      load_sums(parts, row + part, part < count, column, sums[i]);
    }
  }
};

__device__ inline bool sees_keys(const FwdParams& p, const Row& row) {
  const KeyBounds bounds = key_bounds_of(p.heads, p.mask, row.tile, row.packed_row);
  return !bounds.is_empty();
}

// Eight parts of a row, which one warp takes together.
template <int kPieces>
struct Eight {
  float4 sums[kCombineWarps][kPieces];

  __device__ void load(const PartParams& parts, int64_t row, int first, int count, int column) {
#pragma unroll
    for (int i = 0; i < kCombineWarps; ++i) {
      load_sums(parts, row + first + i, first + i < count, column, sums[i]);
    }
  }
};

// A row by one warp, which adds what eight warps of a CTA would add, each sum by itself.
template <Element kElement, int kPieces>
__device__ inline void combine_by_warp(const FwdParams& p, const Row& row, int count) {
  const int lane = threadIdx.x % 32;
  const int64_t at = first_part_row(p, row.tile, row.place);
  const auto stats_of = [&](int part) { return p.parts.stats[at + part]; };
  Eight<kPieces> eight;
  eight.load(p.parts, at, 0, count, 4 * lane);
  const PartStats total = total_of(count, stats_of);
  float4 sums[kCombineWarps][kPieces] = {};
#pragma unroll 1
  for (int first = 0; first < count;) {
    const float weight =
        first + lane < count ? weight_of(stats_of(first + lane).max_log2, total.max_log2) : 0.0f;
#pragma unroll
    for (int i = 0; i < kCombineWarps; ++i) {
      const float of_part = __shfl_sync(0xffffffffu, weight, i);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
        add_weighted(of_part, eight.sums[i][piece], &sums[i][piece]);
    }
    first += kCombineWarps;
    eight.load(p.parts, at, first, count, 4 * lane);
  }
  const FinishedRow end = finish_row(total.sum, total.max_log2, sees_keys(p, row),
                                     sink_of(p.scores, row.tile, row.place));
  if (lane == 0) {
    store_lse(p.output.lse, p.sequences, p.heads.heads_q, row.tile, row.place, end.lse);
  }
  const int64_t element = out_element(p, row.tile, row.place);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    float4 sum{};
#pragma unroll
    for (int i = 0; i < kCombineWarps; ++i) add(sums[i][piece], &sum);
    const int column = 4 * lane + kPieceColumns * piece;
    store_columns<kElement>(p.output, element, column, {sum.x, sum.y}, end.factor);
    store_columns<kElement>(p.output, element, column + 2, {sum.z, sum.w}, end.factor);
  }
}

}  // namespace combine

template <Element kElement, int kPieces>
__global__ void __launch_bounds__(kCombineThreads)
    combine_parts(const __grid_constant__ FwdParams p) {
  using namespace combine;
  __shared__ float4 sums[kCombineWarps][kPieces * kPieceColumns / 4];
  // Before the wait, as what it reads was there before the kernel that wrote the parts.
  const int warp = threadIdx.x / 32, column = threadIdx.x % 32 * 4;
  const int rows = p.sequences.batch * p.sequences.seqlen_q * p.heads.heads_q;
  const int rows_of_cta = combine_rows(p.parts.most, rows);
  const bool by_warp = rows_of_cta > 1;
  const int index = static_cast<int>(blockIdx.x) * rows_of_cta + (by_warp ? warp : 0);
  const Row row = row_of(p, min(index, rows - 1));
  const int count = count_parts(p, row);
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (!row.exists() || index >= rows) return;
  if (by_warp) return combine_by_warp<kElement, kPieces>(p, row, count);

  const int64_t at = first_part_row(p, row.tile, row.place);
  Group<kPieces> group;
  group.load(p.parts, at, warp, count, column);
  const PartStats total = total_of(count, [&](int part) { return p.parts.stats[at + part]; });
  float4 sum[kPieces] = {};
#pragma unroll 1
  for (int first = warp; first < count;) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = weight_of(group.stats[i].max_log2, total.max_log2);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        add_weighted(weight, group.sums[i][piece], &sum[piece]);
      }
    }
    first += kCombineWarps * kAtOnce;
    group.load(p.parts, at, first, count, column);
  }
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece)
    sums[warp][32 * piece + threadIdx.x % 32] = sum[piece];
  __syncthreads();

  const FinishedRow end = finish_row(total.sum, total.max_log2, sees_keys(p, row),
                                     sink_of(p.scores, row.tile, row.place));
  if (threadIdx.x == 0) {
    store_lse(p.output.lse, p.sequences, p.heads.heads_q, row.tile, row.place, end.lse);
  }
  // Two columns a thread.
  const int first = 2 * threadIdx.x;
  if (first >= p.output.head_dim_v) return;
  float2 out{};
#pragma unroll
  for (int i = 0; i < kCombineWarps; ++i) {
    const float2 of_warp = reinterpret_cast<const float2*>(sums[i])[threadIdx.x];
    out.x += of_warp.x;
    out.y += of_warp.y;
  }
  store_columns<kElement>(p.output, out_element(p, row.tile, row.place), first, out, end.factor);
}

}  // namespace fa4
