// The pointers of one backward execution. Host pointers on the CPU, device pointers on a GPU;
// borrowed until execute returns (CPU) or the stream has passed it (GPU).
//
// With D = rowsum(dout o out) - dlse and P = exp(score - lse): dS = P o (dP - D), dP = dout v^T;
// dq = scale dS k, dk = scale dS^T q, dv = P^T dout, dsink = -sum exp(sink - lse) D. dk and dv add
// up over the query heads of a key head. out and lse are arguments and need not be those of these
// keys alone: a part of a distributed attention passes the whole's. A row whose lse is -inf sees
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "problem/sequence_args.h"

namespace fa4::internal {

struct BackwardArgs : SequenceArgs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* out = nullptr;    // NULL when dout is
  const void* dout = nullptr;   // shape of out; NULL: zeros, when the problem has_dlse
  const float* lse = nullptr;   // as the forward wrote it
  const float* dlse = nullptr;  // shape of lse, when the problem has_dlse
  const void* sink = nullptr;   // (heads_q) of sink_dtype, when the problem has_sink
  void* dq = nullptr;           // of grad_dtype; NULL: not wanted
  void* dk = nullptr;           // of grad_dtype; NULL together with dv: not wanted
  void* dv = nullptr;
  float* dsink = nullptr;  // (heads_q); NULL: not wanted
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* stream = nullptr;  // CUstream; NULL on the CPU
};

// What holds on every device, because no tensor is read for it: as check_pointers of the forward,
// for these tensors. Neither allocates nor throws anything but Error{kInvalidArgument}.
void check_pointers(const AttentionProblem& problem, const BackwardArgs& args);

// The above and, since host memory can be read, check_index_tensors.
void check_host_args(const AttentionProblem& problem, const BackwardArgs& args);

}  // namespace fa4::internal
