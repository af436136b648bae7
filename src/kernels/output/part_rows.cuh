// What rows of a tile saw of the parts of their keys: where it lies in the workspace, and the sums
// over parts, in one order for whoever puts them together.
#pragma once

#include "kernels/geometry/part_scheduler.cuh"
#include "kernels/output/rows.cuh"
#include "kernels/output/traits.h"
#include "kernels/softmax/finish_row.cuh"

namespace fa4 {

// Which of the workspace's rows is a place's first part.
__device__ inline int64_t first_part_row(const FwdParams& p, const WorkTile& tile, Place place) {
  const int64_t position = int64_t{tile.batch} * p.parts.queries + place.position;
  const int64_t row = p.parts.queries > 0 ? position * p.heads.heads_q + place.head
                                          : lse_index(p.sequences, p.heads.heads_q, tile, place);
  return row * p.parts.most;
}

// The workspace's row that takes a place's sums and statistics of the tile's part; -1: there is no
// such row.
template <int kTileRows>
__device__ inline int64_t part_row(const FwdParams& p, const WorkTile& tile, Place place) {
  if (place.position >= tile.seqlen_q) return -1;
  return first_part_row(p, tile, place) + tile.part - parts_of_tile<kTileRows>(p, tile).begin;
}

// All the `count` parts of a row together; a warp's lanes call it. `stats_of`: of a part.
template <class StatsOf>
__device__ inline PartStats total_of(int count, StatsOf stats_of) {
  const int lane = threadIdx.x % 32;
  PartStats total{-kInfinity, 0.0f};
#pragma unroll 1
  for (int i = lane; i < count; i += 32)
    total.max_log2 = ptx::max_nan(total.max_log2, stats_of(i).max_log2);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    total.max_log2 = ptx::max_nan(total.max_log2, __shfl_xor_sync(0xffffffffu, total.max_log2, d));
  }
#pragma unroll 1
  for (int i = lane; i < count; i += 32) {
    const PartStats stats = stats_of(i);
    total.sum = fmaf(stats.sum, weight_of(stats.max_log2, total.max_log2), total.sum);
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) total.sum += __shfl_xor_sync(0xffffffffu, total.sum, d);
  return total;
}

__device__ inline void add_weighted(float weight, const float4& x, float4* sum) {
  sum->x = fmaf(weight, x.x, sum->x);
  sum->y = fmaf(weight, x.y, sum->y);
  sum->z = fmaf(weight, x.z, sum->z);
  sum->w = fmaf(weight, x.w, sum->w);
}

// Rounded apart from the products.
__device__ inline void add(const float4& x, float4* sum) {
  sum->x = __fadd_rn(sum->x, x.x);
  sum->y = __fadd_rn(sum->y, x.y);
  sum->z = __fadd_rn(sum->z, x.z);
  sum->w = __fadd_rn(sum->w, x.w);
}

// At most kCombineWarps parts one after another: products and sums are rounded apart, as those of
// several warps are. `weight`: of the lane's part; of one that is not there 0, as its sums are.
template <class SumsOf>
__device__ inline float4 sum_in_order(float weight, SumsOf sums_of) {
  float4 sum{};
#pragma unroll
  for (int part = 0; part < kCombineWarps; ++part) {
    float4 weighted{};
    add_weighted(__shfl_sync(0xffffffffu, weight, part), sums_of(part), &weighted);
    add(weighted, &sum);
  }
  return sum;
}

// Two columns of a row of out, which begins at element `row`, of sums and the row's factor.
template <Element kElement>
__device__ inline void store_columns(const OutputParams& output, int64_t row, int column,
                                     float2 sum, float factor) {
  if (column >= output.head_dim_v) return;
  const float2 out = {factor == 0.0f ? 0.0f : sum.x * factor,
                      factor == 0.0f ? 0.0f : sum.y * factor};
  const int64_t element = row + column;
  if (output.is_f32 != 0) {
    *reinterpret_cast<float2*>(static_cast<float*>(output.data) + element) = out;
  } else {
    static_cast<uint32_t*>(output.data)[element / 2] = pack<kElement>(out.x, out.y);
  }
}

}  // namespace fa4
