// dq from the sums of the main kernel, dsink from its parts.
#pragma once

#include "kernels/backward/gradient_piece.cuh"
#include "kernels/backward/gradient_rows.cuh"
#include "kernels/ptx/grid_dependency.cuh"

namespace fa4 {
namespace postprocess {

inline constexpr int kPostprocessCtas = 6;  // of an SM: registers hold two pieces a thread

// In one order, so that its bits are always the same.
__device__ inline void add_up_dsink(const BwdParams& p, int head) {
  __shared__ float sums[kPostprocessThreads];
  if (p.gradients.dsink == nullptr) return;
  const int count = p.sequences.batch * num_query_blocks(p.sequences.seqlen_q);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < count; i += kPostprocessThreads) {
    sum += p.workspace.dsink[head * count + i];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kPostprocessThreads; ++i) sum += sums[i];
  p.gradients.dsink[head] = sum;
}

// Works of the main kernel finish dq of all but the last sections, where they finish any.
__device__ inline bool is_finished(const BwdParams& p, const QueryBlock& of) {
  if (p.workspace.ended == nullptr) return false;
  const uint32_t section = section_of_head(p, of.sequence, of.head);
  return section + p.order.finish_behind < static_cast<uint32_t>(p.order.sections);
}

// Where the first one to add stores, there are no sums without one.
__device__ inline bool has_sums(const BwdParams& p, const QueryBlock& of) {
  return p.workspace.dq_counts == nullptr || p.workspace.dq_counts[of.block] != 0;
}

// Writes dq from sums that lie in rows: a thread takes 32 columns of one row, then those 64 further
// on.
template <Element kElement>
__device__ inline void store_rows(const BwdParams& p, const QueryBlock& of) {
  const bool is_sum = has_sums(p, of);
  const int row = threadIdx.x % kQueryRows, position = of.first_row() + row;
  const GradientRow to(p.gradients.dq, p.gradients.is_f32 != 0, position < of.sequence.seqlen_q,
                       of.sequence.batch, of.sequence.offset_q + position, of.head);
  const auto* from = reinterpret_cast<const float4*>(p.workspace.dq + of.block * kQueryRows *
                                                                          p.workspace.dq_columns) +
                     row;
  constexpr int kColumns = 32, kStride = kPostprocessThreads / kQueryRows * kColumns;
#pragma unroll 1
  for (int column = threadIdx.x / kQueryRows * kColumns; column < p.workspace.dq_columns;
       column += kStride) {
    float r[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; i += 4) {
      const float4 four = is_sum ? from[(column + i) / 4 * kQueryRows] : float4{0, 0, 0, 0};
      r[i] = four.x * p.scale, r[i + 1] = four.y * p.scale;
      r[i + 2] = four.z * p.scale, r[i + 3] = four.w * p.scale;
    }
    to.store<kElement>(column, r);
  }
}

}  // namespace postprocess

// A CTA a block of query rows, then one for each query head's dsink. Threads hold the sums as the
// accumulators of a warpgroup.
template <BwdRowTraits T>
__global__ void __launch_bounds__(kPostprocessThreads, postprocess::kPostprocessCtas)
    bwd_postprocess(const __grid_constant__ BwdParams p) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int blocks = p.sequences.batch * p.heads_q * num_query_blocks(p.sequences.seqlen_q);
  const int index = static_cast<int>(blockIdx.x) - blocks;
  if (index >= 0) return postprocess::add_up_dsink(p, index);
  // Last blocks first: their sums are in the L2 cache.
  const QueryBlock of = query_block(p, blocks - 1 - static_cast<int>(blockIdx.x));
  if (!of.is_inside() || p.workspace.dq == nullptr || postprocess::is_finished(p, of)) return;
  if constexpr (T.dq_layout == DqLayout::kRows) {
    postprocess::store_rows<T.element>(p, of);
    return;
  }
  const int thread = threadIdx.x, lane = thread % 32;
  const GradientPlace to{
      p.gradients.dq,       of.sequence, of.sequence.offset_q,
      of.sequence.seqlen_q, of.head,     of.first_row() + 16 * (thread / 32) + lane / 4};
  const int columns = p.workspace.dq_columns, part = dq_part_columns(columns);
  const auto* sums =
      reinterpret_cast<const float4*>(p.workspace.dq + of.block * kQueryRows * columns) + lane;
  const bool is_sum = postprocess::has_sums(p, of);
  // Two pieces of 32 columns at a time, both under way together: DRAM answers late.
#pragma unroll 1
  for (int first = 0; first < columns; first += 64) {
    float x[2][16];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = first + i / 4 * 32;
      if (column >= columns) break;
      const auto* from =
          sums + (4 * (column / part) + thread / 32) * (4 * part) + column % part * 4;
      *reinterpret_cast<float4*>(x[i / 4] + i % 4 * 4) =
          is_sum ? from[i % 4 * 32] : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = first + i * 32;
      if (column >= columns) break;
      store_gradient<T.element>(x[i], to, column, p.scale, p.gradients.is_f32 != 0, lane);
    }
  }
}

}  // namespace fa4
