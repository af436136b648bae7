// What the main kernel of the backward finds: delta and -lse log2(e) of every query row, with
// values that make probabilities 0 where there is no row, zeros where dq adds up, and parts of
// dsink.
#pragma once

#include "kernels/backward/sequence.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/ptx/math.cuh"
#include "kernels/tile/pack.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4 {
namespace preprocess {

inline constexpr int kRowLanes = 16;     // threads that share a row
inline constexpr int kPieceColumns = 8;  // of 16 bytes
inline constexpr float kLog2E = 1.4426950408889634f;

// This thread's part of rowsum(dout o out).
template <Element kElement>
__device__ inline float dot_of_row(const BwdParams& p, const QueryBlock& of, int row, int lane) {
  const RowTensor &out = p.inputs.out, &dout = p.inputs.dout;
  const int position = of.sequence.offset_q + row;
  const int64_t at_out = row_element(out, of.sequence.batch, position, of.head);
  const int64_t at_dout = row_element(dout, of.sequence.batch, position, of.head);
  float sum = 0.0f;
  for (int c = lane * kPieceColumns; c < out.columns; c += kRowLanes * kPieceColumns) {
    const uint4 a =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(out.data) + at_out + c);
    const uint4 b =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(dout.data) + at_dout + c);
    const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum = fmaf(unpack_lower<kElement>(x[i]), unpack_lower<kElement>(y[i]), sum);
      sum = fmaf(unpack_upper<kElement>(x[i]), unpack_upper<kElement>(y[i]), sum);
    }
  }
  return sum;
}

// Every lane gets it.
__device__ inline float sum_of_row(float x) {
#pragma unroll
  for (int d = 1; d < kRowLanes; d *= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

__device__ inline int64_t lse_index(const BwdParams& p, const QueryBlock& of, int row) {
  const SequenceParams& s = p.sequences;
  return s.cu_seqlens_q == nullptr
             ? (int64_t{of.sequence.batch} * p.heads_q + of.head) * s.seqlen_q + row
             : int64_t{of.head} * s.total_q + of.sequence.offset_q + row;
}

// The whole CTA's sum, by thread 0: in one order, so that its bits are always the same.
__device__ inline float sum_of_block(float x) {
  __shared__ float sums[kPreprocessThreads / 32];
  x = sum_of_row(x);
  x += __shfl_xor_sync(0xffffffffu, x, kRowLanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; threadIdx.x == 0 && i < kPreprocessThreads / 32; ++i) sum += sums[i];
  return sum;
}

__device__ inline void clear_dq(const BwdWorkspace& workspace, int64_t block) {
  if (workspace.dq == nullptr) return;
  const int elements = kQueryRows * workspace.dq_columns;
  auto* to = reinterpret_cast<float4*>(workspace.dq + block * elements);
  for (int i = threadIdx.x; i < elements / 4; i += kPreprocessThreads) {
    to[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
  }
}

}  // namespace preprocess

// A CTA a block of query rows.
template <BwdRowTraits T>
__global__ void __launch_bounds__(kPreprocessThreads)
    bwd_preprocess(const __grid_constant__ BwdParams p) {
  using namespace preprocess;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const QueryBlock of = query_block(p, static_cast<int>(blockIdx.x));
  const int lane = threadIdx.x % kRowLanes;
  float dsink = 0.0f;
  if (threadIdx.x == 0) {
    if (blockIdx.x == 0 && p.workspace.ticket != nullptr) *p.workspace.ticket = 0;
    if (of.is_inside() && p.workspace.turns != nullptr) p.workspace.turns[of.block] = 0;
  }
  if (of.is_inside()) {
    clear_dq(p.workspace, of.block);
    for (int i = threadIdx.x / kRowLanes; i < kQueryRows; i += kPreprocessThreads / kRowLanes) {
      const int row = of.first_row() + i;
      float delta = 0.0f, neg_lse_log2 = -kInfinity;
      if (row < of.sequence.seqlen_q) {
        if (p.inputs.dout.data != nullptr) delta = dot_of_row<T.element>(p, of, row, lane);
      }
      delta = sum_of_row(delta);
      if (row < of.sequence.seqlen_q) {
        const int64_t index = lse_index(p, of, row);
        const float lse = p.inputs.lse[index];
        if (p.inputs.dlse != nullptr) delta -= p.inputs.dlse[index];
        if (lse != -kInfinity) {
          neg_lse_log2 = -lse * kLog2E;
          if (p.workspace.dsink != nullptr && lane == 0) {
            const float sink = load_float(p.scores.sink, p.scores.sink_type, of.head) * kLog2E;
            dsink = fmaf(-ptx::ex2_approx_ftz(sink + neg_lse_log2), delta, dsink);
          }
        }
      }
      if (lane == 0) {
        const int64_t at =
            of.block * kQueryRows + (T.dq_layout == DqLayout::kFragments ? fragment_place(i) : i);
        p.workspace.neg_lse_log2[at] = neg_lse_log2;
        p.workspace.delta[at] = delta;
      }
    }
  }
  if (p.workspace.dsink == nullptr) return;
  dsink = sum_of_block(dsink);
  const int blocks = num_query_blocks(p.sequences.seqlen_q);
  if (threadIdx.x == 0) {
    p.workspace.dsink[(of.head * p.sequences.batch + of.sequence.batch) * blocks + of.m_block] =
        dsink;
  }
}

}  // namespace fa4
