// What the main kernel of the backward finds: delta and -lse log2(e) of every query row, with
// values that make probabilities 0 where there is no row, zeros where dq adds up, and parts of
// dsink.
#pragma once

#include "kernels/backward/sequence.cuh"
#include "kernels/base/log2.h"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/ptx/math.cuh"
#include "kernels/tile/bf16_terms.cuh"

namespace fa4 {
namespace preprocess {

inline constexpr int kRowLanes = 8;      // threads that share a row
inline constexpr int kPieceColumns = 8;  // of 16 bytes
// Rows between two of a thread, and how many it has.
inline constexpr int kRowStep = kPreprocessThreads / kRowLanes;
inline constexpr int kThreadRows = kQueryRows / kRowStep;
// CTAs of an SM: the work is to wait for DRAM, and many wait at once.
inline constexpr int kPreprocessCtas = 8;

template <Element kElement>
__device__ inline float dot(const uint4& a, const uint4& b, float sum) {
  const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(unpack_lower<kElement>(x[i]), unpack_lower<kElement>(y[i]), sum);
    sum = fmaf(unpack_upper<kElement>(x[i]), unpack_upper<kElement>(y[i]), sum);
  }
  return sum;
}

// This thread's part of rowsum(dout o out) of its rows, from `row` on: a piece of each at a time.
template <Element kElement>
__device__ inline void add_dots(const BwdParams& p, const QueryBlock& of, int row, int lane,
                                float (&sums)[kThreadRows]) {
  const RowTensor &out = p.inputs.out, &dout = p.inputs.dout;
  const int position = of.sequence.offset_q + row, rows = of.sequence.seqlen_q - row;
  const auto* a = static_cast<const uint16_t*>(out.data) +
                  row_element(out, of.sequence.batch, position, of.head);
  const auto* b = static_cast<const uint16_t*>(dout.data) +
                  row_element(dout, of.sequence.batch, position, of.head);
#pragma unroll 1
  for (int c = lane * kPieceColumns; c < out.columns; c += kRowLanes * kPieceColumns) {
    uint4 x[kThreadRows], y[kThreadRows];
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      x[i] = y[i] = uint4{0, 0, 0, 0};
      if (i * kRowStep >= rows) continue;
      x[i] = *reinterpret_cast<const uint4*>(a + i * kRowStep * out.stride_seqlen + c);
      y[i] = *reinterpret_cast<const uint4*>(b + i * kRowStep * dout.stride_seqlen + c);
    }
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) sums[i] = dot<kElement>(x[i], y[i], sums[i]);
  }
}

// The sum of `x` over the lanes that share a row; every lane gets it.
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
__device__ inline float sum_of_cta(float x) {
  __shared__ float sums[kPreprocessThreads / 32];
  x = sum_of_row(x);
#pragma unroll
  for (int d = kRowLanes; d < 32; d *= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; threadIdx.x == 0 && i < kPreprocessThreads / 32; ++i) sum += sums[i];
  return sum;
}

// Where the first one to add to a block stores, nobody reads what is there before. Where works of
// the main kernel clear sums, those of the first sections are cleared here.
__device__ inline void clear_dq(const BwdParams& p, const QueryBlock& of) {
  const BwdWorkspace& w = p.workspace;
  if (w.dq == nullptr) return;
  if (w.dq_counts != nullptr) {
    if (threadIdx.x == 0) w.dq_counts[of.block] = 0;
    return;
  }
  if (w.cleared != nullptr && section_of_head(p, of.sequence, of.head) >= kSectionsAhead) return;
  clear_sums<kPreprocessThreads>(w, of.block, w.dq_columns);
}

// Zeros the counts of subgroups that meet. All CTAs call it together.
__device__ inline void clear_subgroup_counts(const BwdParams& p) {
  const BwdWorkspace& w = p.workspace;
  if (w.subgroup_counts == nullptr) return;
  const int nodes = num_nodes(p.subgroups, p.deterministic != 0);
  const int64_t counts = int64_t{p.heads_kv / p.subgroups} * w.key_blocks * nodes * kSubgroupUnits;
  for (int64_t i = int64_t{blockIdx.x} * kPreprocessThreads + threadIdx.x; i < counts;
       i += int64_t{gridDim.x} * kPreprocessThreads) {
    w.subgroup_counts[i] = SubgroupCounts{0, 0};
  }
}

__device__ inline void clear_counts(const BwdParams& p) {
  const BwdWorkspace& w = p.workspace;
  if (threadIdx.x == 0 && w.ticket != nullptr) *w.ticket = 0;
  if (w.cleared == nullptr && w.ended == nullptr) return;
  for (int i = threadIdx.x; i < p.order.sections; i += kPreprocessThreads) {
    if (w.cleared != nullptr) w.cleared[i] = 0;
    if (w.ended != nullptr) w.ended[i] = 0;
  }
}

// Infinity becomes the largest bf16: it stands beside factors of zero, and its probability is zero
// too, since scale_log2 is never nearer to zero than 2^-120.
__device__ inline float bounded(float x) {
  constexpr float kMax = 0x1.fep127f;
  return fabsf(x) > kMax ? copysignf(kMax, x) : x;
}

__device__ inline void store(float neg_lse, float neg_delta, StatisticTerms* to) {
  constexpr Element kTermType = Element::kBF16;
  float a[3], b[3];
  split_in_terms(bounded(neg_lse), a);
  split_in_terms(bounded(neg_delta), b);
  *reinterpret_cast<uint4*>(to) = {pack<kTermType>(a[0], a[1]), pack<kTermType>(a[2], b[0]),
                                   pack<kTermType>(b[1], b[2]), 0};
}

// What the main kernel finds of a row. Returns `dsink`, to which the row's share is added.
template <BwdRowTraits T>
__device__ inline float store_row(const BwdParams& p, const QueryBlock& of, int row_of_block,
                                  float lse, float delta, float dsink) {
  const int row = of.first_row() + row_of_block;
  float neg_lse_log2 = -kInfinity;
  if (p.inputs.dlse != nullptr && row < of.sequence.seqlen_q) {
    delta -= p.inputs.dlse[lse_index(p, of, row)];
  }
  if (lse != -kInfinity) {
    neg_lse_log2 = -lse * kLog2E;
    if (p.workspace.dsink != nullptr) {
      const float sink = load_float(p.scores.sink, p.scores.sink_type, of.head) * kLog2E;
      dsink = fmaf(-ptx::ex2_approx_ftz(sink + neg_lse_log2), delta, dsink);
    }
  }
  const int64_t block = of.block * kQueryRows;
  if constexpr (T.statistics == StatisticForm::kRows) {
    p.workspace.neg_lse_log2[block + row_of_block] = neg_lse_log2;
    p.workspace.delta[block + row_of_block] = delta;
  } else {
    constexpr bool kHasLse = T.statistics == StatisticForm::kParts;
    store(kHasLse ? neg_lse_log2 * -p.neg_lse_log2_to_score : 0.0f, -delta,
          &p.workspace.statistics[block + row_of_block]);
    if constexpr (!kHasLse) {
      p.workspace.neg_lse_log2[block + fragment_place(row_of_block)] = neg_lse_log2;
    }
  }
  return dsink;
}

}  // namespace preprocess

// A CTA a block of query rows.
template <BwdRowTraits T>
__global__ void __launch_bounds__(kPreprocessThreads, preprocess::kPreprocessCtas)
    bwd_preprocess(const __grid_constant__ BwdParams p) {
  using namespace preprocess;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  // Last blocks first: what is written last is in the L2 cache when the main kernel begins.
  const QueryBlock of = query_block(p, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const int lane = threadIdx.x % kRowLanes, first = threadIdx.x / kRowLanes;
  float dsink = 0.0f;
  if (blockIdx.x == 0) clear_counts(p);
  clear_subgroup_counts(p);
  if (of.is_inside()) {
    clear_dq(p, of);
    float lse[kThreadRows], deltas[kThreadRows] = {};
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const int row = of.first_row() + first + i * kRowStep;
      lse[i] = row < of.sequence.seqlen_q ? p.inputs.lse[lse_index(p, of, row)] : -kInfinity;
    }
    if (p.inputs.dout.data != nullptr) {
      add_dots<T.element>(p, of, of.first_row() + first, lane, deltas);
    }
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float delta = sum_of_row(deltas[i]);
      if (lane == 0) dsink = store_row<T>(p, of, first + i * kRowStep, lse[i], delta, dsink);
    }
  }
  if (p.workspace.dsink == nullptr) return;
  dsink = sum_of_cta(dsink);
  const int blocks = num_query_blocks(p.sequences.seqlen_q);
  if (threadIdx.x == 0) {
    p.workspace.dsink[(of.head * p.sequences.batch + of.sequence.batch) * blocks + of.m_block] =
        dsink;
  }
}

}  // namespace fa4
