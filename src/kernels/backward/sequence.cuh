// Which query rows of a sequence see a key, and the blocks of rows that the kernels of the backward
// work on.
#pragma once

#include "kernels/backward/order.h"
#include "kernels/backward/params.h"
#include "kernels/backward/traits.h"
#include "kernels/geometry/query_range.h"
#include "kernels/geometry/section_order.h"
#include "kernels/geometry/sequence.cuh"

namespace fa4 {

__device__ inline QueryBounds bounds_of_key(const MaskParams& mask, const Sequence& s, int key) {
  return query_bounds(key, s.seqlen_q, s.seqlen_k, mask.window_left, mask.window_right);
}

// Blocks of query rows that see one of the keys [begin, end), of which those from seqlen_k on are
// not there.
__device__ inline BlockRange rows_of_keys(const MaskParams& mask, const Sequence& s, int begin,
                                          int end, int block_rows) {
  BlockRange rows = block_range(bounds_of_key(mask, s, begin),
                                bounds_of_key(mask, s, min(end, s.seqlen_k) - 1), block_rows);
  if (end > s.seqlen_k) rows.full_end = rows.full_begin;
  return rows;
}

// How many of the blocks of `keys` keys of key head `head` (or of a subgroup of its group) that
// visit block `m_block` of `rows` rows add to its dq before block `n_block` does. It follows from
// rows_of_keys alone, so that only blocks that come are counted.
__device__ inline uint32_t turn_of(const BwdParams& p, const Sequence& s, int head, int n_block,
                                   int m_block, int keys, int rows) {
  const int first_row = m_block * rows;
  const bool last_first = p.order.last_keys_first != 0 && !goes_down(p.order, head, p.heads_kv);
  return turn_of_block(n_block, first_row, first_row + rows, s.seqlen_q, s.seqlen_k,
                       p.mask.window_left, p.mask.window_right, keys, last_first);
}

__device__ inline int num_query_blocks(int seqlen_q) {
  return (seqlen_q + kQueryRows - 1) / kQueryRows;
}

// The first block of a sequence's head in the workspace.
__device__ inline int64_t first_query_block(const BwdParams& p, const Sequence& of, int head) {
  const int64_t before = p.sequences.cu_seqlens_q == nullptr
                             ? int64_t{of.batch} * p.heads_q * p.workspace.head_blocks
                             : (int64_t{of.offset_q} + int64_t{of.batch} * kQueryRows) / kQueryRows;
  return before + int64_t{head} * p.workspace.head_blocks;
}

// Blocks of kSubgroupKeys keys of the sequences before `of`, of one key head: a packed sequence
// begins with a block of its own.
__device__ inline int subgroup_key_blocks_before(const BwdParams& p, const Sequence& of) {
  if (p.sequences.cu_seqlens_k != nullptr) return of.offset_k / kSubgroupKeys + of.batch;
  return of.batch * ((p.sequences.seqlen_k + kSubgroupKeys - 1) / kSubgroupKeys);
}

// A block of query rows of one head, as the kernels before and after the main one divide them.
struct QueryBlock {
  Sequence sequence;
  int head;
  int m_block;
  int64_t block;  // in the workspace
  __device__ int first_row() const { return m_block * kQueryRows; }
  __device__ bool is_inside() const { return first_row() < sequence.seqlen_q; }
};
__device__ inline QueryBlock query_block(const BwdParams& p, int index) {
  const int blocks = num_query_blocks(p.sequences.seqlen_q);
  const int row = index / blocks, batch = row / p.heads_q;
  QueryBlock of{sequence_of(p.sequences, batch), row - batch * p.heads_q, index - row * blocks, 0};
  of.block = first_query_block(p, of.sequence, of.head) + of.m_block;
  return of;
}

// Key heads of all sequences, or subgroups of theirs.
__device__ inline uint32_t num_key_heads(const BwdParams& p) {
  return p.heads_kv * p.sequences.batch;
}
// The section of a query head, where works clear sums.
__device__ inline uint32_t section_of_head(const BwdParams& p, const Sequence& of, int head) {
  const uint32_t key_head = of.batch * p.heads_kv + head / p.group;
  return section_of_tile(key_head, num_key_heads(p), 1, p.order.sections).number;
}

// Zeros for the sums of dq of a block of the workspace, by kThreads threads that lie together.
template <int kThreads>
__device__ inline void clear_sums(const BwdWorkspace& workspace, int64_t block, int columns) {
  const int pieces = kQueryRows * columns / 4;
  auto* to = reinterpret_cast<float4*>(workspace.dq) + block * pieces;
#pragma unroll 8
  for (int i = threadIdx.x % kThreads; i < pieces; i += kThreads) {
    to[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
  }
}

// The first element of a row.
__device__ inline int64_t row_element(const RowTensor& tensor, int batch, int row, int head) {
  return batch * tensor.stride_batch + row * tensor.stride_seqlen + head * tensor.stride_head;
}

}  // namespace fa4
