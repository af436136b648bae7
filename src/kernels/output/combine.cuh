// Out and lse of rows whose keys were cut into parts: a CTA a row, in one order, so that the bits
// depend on nothing but the row's own parts.
//
// A warp takes every eighth part, a lane four columns side by side. Parts that no row of the tile
// sees, and those past the sequence's end, were written by nobody and are read by nobody.
#pragma once

#include "kernels/geometry/part_scheduler.cuh"
#include "kernels/output/rows.cuh"
#include "kernels/output/traits.h"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/softmax/finish_row.cuh"

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
  const int heads = p.heads.heads_q, of_heads = index / heads, head = index - of_heads * heads;
  const int batch = of_heads / p.sequences.seqlen_q;
  const int position = of_heads - batch * p.sequences.seqlen_q;
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
  if (row.tile.seqlen_k == 0) return 0;
  const int first = row.tile.block * p.parts.tile_rows;
  const int rows = row.tile.seqlen_q << p.heads.group_log2;
  return parts_of_rows(p, row.tile, first, min(first + p.parts.tile_rows, rows) - 1).count();
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
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const int at = column + kPieceColumns * piece;
        sums[i][piece] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (part < count && at < parts.columns) {
          sums[i][piece] =
              *reinterpret_cast<const float4*>(parts.sums + (row + part) * parts.columns + at);
        }
      }
    }
  }
};

// All the row's parts together, as each warp finds them.
__device__ inline PartStats total_of(const PartStats* stats, int count) {
  const int lane = threadIdx.x % 32;
  PartStats total{-kInfinity, 0.0f};
#pragma unroll 1
  for (int i = lane; i < count; i += 32)
    total.max_log2 = ptx::max_nan(total.max_log2, stats[i].max_log2);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    total.max_log2 = ptx::max_nan(total.max_log2, __shfl_xor_sync(0xffffffffu, total.max_log2, d));
  }
#pragma unroll 1
  for (int i = lane; i < count; i += 32) {
    total.sum = fmaf(stats[i].sum, weight_of(stats[i].max_log2, total.max_log2), total.sum);
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) total.sum += __shfl_xor_sync(0xffffffffu, total.sum, d);
  return total;
}

__device__ inline bool sees_keys(const FwdParams& p, const Row& row) {
  const KeyBounds bounds = key_bounds_of(p.heads, p.mask, row.tile, row.packed_row);
  return bounds.begin < bounds.end;
}

}  // namespace combine

template <Element kElement, int kPieces>
__global__ void __launch_bounds__(kCombineThreads)
    combine_parts(const __grid_constant__ FwdParams p) {
  using namespace combine;
  __shared__ float4 sums[kCombineWarps][kPieces * kPieceColumns / 4];
  // Before the wait, as what it reads was there before the kernel that wrote the parts.
  const Row row = row_of(p, static_cast<int>(blockIdx.x));
  const int count = count_parts(p, row), warp = threadIdx.x / 32, column = threadIdx.x % 32 * 4;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (!row.exists()) return;

  const int64_t at = lse_index(p.sequences, p.heads.heads_q, row.tile, row.place) * p.parts.most;
  Group<kPieces> group;
  group.load(p.parts, at, warp, count, column);
  const PartStats total = total_of(p.parts.stats + at, count);
  float4 sum[kPieces] = {};
#pragma unroll 1
  for (int first = warp; first < count;) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = weight_of(group.stats[i].max_log2, total.max_log2);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        sum[piece].x = fmaf(weight, group.sums[i][piece].x, sum[piece].x);
        sum[piece].y = fmaf(weight, group.sums[i][piece].y, sum[piece].y);
        sum[piece].z = fmaf(weight, group.sums[i][piece].z, sum[piece].z);
        sum[piece].w = fmaf(weight, group.sums[i][piece].w, sum[piece].w);
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
  out.x = end.factor == 0.0f ? 0.0f : out.x * end.factor;
  out.y = end.factor == 0.0f ? 0.0f : out.y * end.factor;
  const int64_t element = out_element(p, row.tile, row.place) + first;
  if (p.output.is_f32 != 0) {
    *reinterpret_cast<float2*>(static_cast<float*>(p.output.data) + element) = out;
  } else {
    static_cast<uint32_t*>(p.output.data)[element / 2] = pack<kElement>(out.x, out.y);
  }
}

}  // namespace fa4
