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

// Rows of packed q, and of packed k, that are there in this execution; 0 in another layout,
// whatever the arguments say.
int64_t rows_of_packed_q(const AttentionProblem& problem, const ForwardArgs& args);
int64_t rows_of_packed_k(const AttentionProblem& problem, const ForwardArgs& args);

// What holds on every device, because no tensor is read for it: totals within the problem's, an
// index tensor and sinks exactly when the problem announced them, pointers where something is read
// or written, aligned to their elements, and outputs (out, lse, the workspace) that overlap
// neither inputs nor each other. Neither allocates nor throws anything but Error{kInvalidArgument}.
void check_pointers(const AttentionProblem& problem, const ForwardArgs& args);

// The above and, since host memory can be read, the index tensors: cu_seqlens ascending from 0 to
// at most the total, lengths within the maxima, page numbers within num_pages.
void check_host_args(const AttentionProblem& problem, const ForwardArgs& args);

}  // namespace fa4::internal
