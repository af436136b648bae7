// The pointers of one execution. Host pointers on the CPU, device pointers on a GPU; borrowed until
// execute returns (CPU) or the stream has passed it (GPU).
#pragma once

#include <cstddef>
#include <cstdint>

#include "problem/attention_problem.h"

namespace fa4::internal {

struct ForwardArgs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;                   // NULL: not wanted
  const float* sink = nullptr;            // (heads_q), when the problem has_sink
  const int32_t* cu_seqlens_q = nullptr;  // (batch + 1), packed q
  const int32_t* cu_seqlens_k = nullptr;  // (batch + 1), packed k
  const int32_t* seqused_k = nullptr;     // (batch)
  const int32_t* page_table = nullptr;    // (batch, pages_per_seq)
  int64_t total_q = -1;  // packed: rows actually there, at most the problem's; -1: the problem's
  int64_t total_k = -1;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* stream = nullptr;  // CUstream; NULL on the CPU
};

// One sequence of the batch: where it starts and how long it is. CPU only (reads the index
// tensors).
struct SequenceView {
  int64_t seqlen_q = 0;
  int64_t seqlen_k = 0;  // seqused_k applied
  int64_t offset_q = 0;  // elements from q's base to row 0 of this sequence, head 0
  int64_t offset_out = 0;
  int64_t offset_k = 0;  // dense and packed; paged: 0, rows are found through page_table
  int64_t offset_v = 0;
  int64_t lse_offset = 0;       // elements to (this sequence, head 0, row 0)
  int64_t lse_head_stride = 0;  // elements between heads
};
SequenceView sequence_view(const AttentionProblem& problem, const ForwardArgs& args, int64_t b);

// Checks the pointers and index tensors on the host: non-null where needed, cu_seqlens ascending
// from 0 to at most the total, lengths within the maxima, page numbers within num_pages. Throws
// Error{kInvalidArgument}.
void check_host_args(const AttentionProblem& problem, const ForwardArgs& args);

// Refuses an output (out, lse, the workspace) that overlaps an input or another output. Part of
// check_host_args; reads no memory, so that it serves device pointers too.
void check_overlaps(const AttentionProblem& problem, const ForwardArgs& args);

}  // namespace fa4::internal
