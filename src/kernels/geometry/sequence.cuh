// Where a sequence of the batch lies, and how long it is.
#pragma once

#include "kernels/forward/params.h"
#include "kernels/ptx/grid_dependency.cuh"

namespace fa4 {

__device__ inline int clamp(int x, int low, int high) {
  return x < low ? low : x > high ? high : x;
}

struct Sequence {
  int batch;
  int offset_q;  // rows before it in a packed tensor, else 0
  int offset_k;
  int seqlen_q;  // in use
  int seqlen_k;
};

// Rows [begin, begin + length) of a packed tensor. Index tensors cannot be checked on the host:
// whatever they hold, nothing outside the tensors is touched.
struct PackedRows {
  int begin;
  int length;
};
__device__ inline PackedRows packed_rows_of(const int32_t* cu_seqlens, int batch, int total,
                                            int longest) {
  const int begin = clamp(cu_seqlens[batch], 0, total);
  const int end = clamp(cu_seqlens[batch + 1], 0, total);
  return {begin, clamp(end - begin, 0, longest)};
}
// Queries of a packed sequence; none of one that another launch has.
__device__ inline PackedRows packed_queries_of(const SequenceParams& s, int batch) {
  const PackedRows rows = packed_rows_of(s.cu_seqlens_q, batch, s.total_q, s.total_q);
  const bool is_here = rows.length >= s.least_q && rows.length <= s.most_q;
  return {rows.begin, is_here ? min(rows.length, s.seqlen_q) : 0};
}

// Called by the first of two launches when it begins: what came before the call is there, so that
// the second has nothing to wait for.
__device__ inline void release_second_launch(const ScheduleParams& schedule) {
  if (schedule.launch_pair != LaunchPair::kFirst) return;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
}
// Waits until what came before the call is there.
__device__ inline void wait_for_inputs(const ScheduleParams& schedule) {
  if (schedule.launch_pair != LaunchPair::kSecond) ptx::griddepcontrol_wait();
}

// Lengths in memory may be what the launch before writes: whoever is about to read some waits for
// it, and no sooner, since what else there is to find goes on meanwhile.
__device__ inline void wait_for_lengths(const SequenceParams& s, const ScheduleParams& schedule) {
  const bool in_memory = s.cu_seqlens_q != nullptr || s.cu_seqlens_k != nullptr ||
                         s.seqused_q != nullptr || s.seqused_k != nullptr;
  if (in_memory) wait_for_inputs(schedule);
}

// Whether rows behind a sequence's last query, or key, may hold anything, and are not to be
// written: where sequences need not end with the tensor, behind whose end TMA reads zeros and
// stores nothing.
__device__ inline bool queries_have_tails(const SequenceParams& s) {
  return s.cu_seqlens_q != nullptr || s.seqused_q != nullptr;
}
__device__ inline bool keys_have_tails(const SequenceParams& s) {
  return s.cu_seqlens_k != nullptr || s.seqused_k != nullptr;
}

__device__ inline Sequence sequence_of(const SequenceParams& s, int batch) {
  Sequence of{batch, 0, 0, s.seqlen_q, s.seqlen_k};
  if (s.cu_seqlens_q != nullptr) {
    const PackedRows rows = packed_queries_of(s, batch);
    of.offset_q = rows.begin, of.seqlen_q = rows.length;
  }
  if (s.cu_seqlens_k != nullptr) {
    const PackedRows rows = packed_rows_of(s.cu_seqlens_k, batch, s.total_k, s.seqlen_k);
    of.offset_k = rows.begin, of.seqlen_k = rows.length;
  }
  if (s.seqused_q != nullptr) of.seqlen_q = clamp(s.seqused_q[batch], 0, of.seqlen_q);
  if (s.seqused_k != nullptr) of.seqlen_k = clamp(s.seqused_k[batch], 0, of.seqlen_k);
  return of;
}

}  // namespace fa4
