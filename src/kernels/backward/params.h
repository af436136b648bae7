// The one parameter of the backward's kernels, in members by theme: what comes before and after the
// main kernel takes those that it needs. Filled on the host at each execution; read as a
// __grid_constant__.
#pragma once

#include "kernels/backward/traits.h"
#include "kernels/base/tensor_map.h"
#include "kernels/forward/params.h"

namespace fa4 {

// Where TMA loads: (head_dim, head, position, batch); a packed tensor has one batch and `total`
// positions. Boxes: slab columns x 1 x rows of a block x 1.
struct BwdTensorMaps {
  TensorMap q;
  TensorMap dout;
  TensorMap k;
  TensorMap v;
  TensorMap dq;  // to store; where works finish dq. Boxes of 64 columns and 16 rows
};

// A tensor that threads read or write; its last dimension is contiguous.
struct RowTensor {
  void* data;  // or null: zeros to read, not wanted to write
  int64_t stride_batch;
  int64_t stride_seqlen;  // elements
  int64_t stride_head;
  int32_t columns;  // multiple of 8
};

struct BwdInputs {
  RowTensor out;
  RowTensor dout;
  const float* lse;   // (batch, heads_q, seqlen_q), packed (heads_q, total_q)
  const float* dlse;  // or null; likewise
};

struct BwdGradients {
  RowTensor dq;
  RowTensor dk;
  RowTensor dv;
  float* dsink;    // (heads_q), or null
  int32_t is_f32;  // dq, dk, dv
};

// The workspace. Query rows count in blocks of kQueryRows: a head's blocks in a dense batch lie one
// after the other, then the next head's, then the next sequence's; packed, a sequence begins at
// block (rows before it + 64 sequences before it) / 64 of its head.
struct BwdWorkspace {
  // Of each row: both in f32, or their terms, or terms of delta beside lse in f32
  // (StatisticForm); what the main kernel does not read is null.
  float* neg_lse_log2;  // -lse log2(e); -inf where nothing is seen, past the end too
  float* delta;         // rowsum(dout o out) - dlse; 0 past the end
  StatisticTerms* statistics;
  float* dq;     // (block, ...): a block lies as the kernel's DqLayout says; or null
  float* dsink;  // (heads_q, batch, blocks of a sequence): parts of dsink; or null
  // Zeros before the main kernel. Of each block, how many CTAs (on Blackwell warps) have added to
  // dq: deterministic; else whether the first has. The first stores. Null: all add to zeros, in any
  // order.
  uint32_t* dq_counts;
  // Zeros before the main kernel. Of each section of key heads, how many works have cleared their
  // share of its sums of dq (sm90/backward/clear.cuh); null: nobody clears any.
  uint32_t* cleared;
  // Zeros before the main kernel. Of each section, how many reducing warps have ended a work; null:
  // works finish no dq (sm90/backward/finish.cuh).
  uint32_t* ended;
  uint32_t* ticket;  // blocks of keys that CTAs have taken; or null: by their own number
  // Where a key head's group of query heads is cut into subgroups, each with works of its own,
  // whose dk and dv come together (subgroup_sums.cuh): (heads_kv, key_blocks, nodes, ...). Else
  // null.
  float* subgroup_sums;             // (..., subgroup_floats): dk and dv of kSubgroupKeys keys
  SubgroupCounts* subgroup_counts;  // (..., kSubgroupUnits), zeros before the main kernel
  int32_t subgroup_floats;
  int32_t key_blocks;   // of a key head in all sequences
  int32_t dq_columns;   // of the main kernel: head_dim rounded up
  int32_t head_blocks;  // of query rows, of a head: of one sequence, or packed of all
};

struct BwdParams {
  BwdTensorMaps maps;
  SequenceParams sequences;
  MaskParams mask;
  ScoreParams scores;
  BwdInputs inputs;
  BwdGradients gradients;
  BwdWorkspace workspace;
  float scale;                  // of dq and dk: softmax_scale
  float neg_lse_log2_to_score;  // -1 / scores.scale_log2; without softcap
  float scale_over_softcap;
  NearCap near;  // with softcap: to tanh
  int32_t heads_q;
  int32_t heads_kv;       // each as often as its group has subgroups
  int32_t group;          // query heads of a subgroup: heads_q / heads_kv
  int32_t subgroups;      // k and v have heads_kv / subgroups heads
  int32_t deterministic;  // CTAs add to dq in turns, and subgroups meet in pairs
  BwdOrder order;
};

}  // namespace fa4
