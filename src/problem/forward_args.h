// The pointers of one forward execution. Host pointers on the CPU, device pointers on a GPU;
// borrowed until execute returns (CPU) or the stream has passed it (GPU).
#pragma once

#include <cstddef>
#include <cstdint>

#include "problem/sequence_args.h"

namespace fa4::internal {

struct ForwardArgs : SequenceArgs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;        // NULL: not wanted
  const void* sink = nullptr;  // (heads_q) of sink_dtype, when the problem has_sink
  // (batch, blocks, heads_kv) by strides, when the problem has_descales; NULL: 1.
  const float* k_descale = nullptr;
  const float* v_descale = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* stream = nullptr;  // CUstream; NULL on the CPU
};

enum class Quantised { kKeys, kValues };

// Elements from k_descale, or v_descale, to the descale of key `n`, or of its value, of sequence b
// and key head `head`. CPU only (reads index tensors).
int64_t descale_place(const AttentionProblem& problem, const SequenceArgs& args, Quantised which,
                      int64_t b, int64_t head, int64_t n);
// That descale; 1 where none are given.
template <class Args>
float descale_of(const AttentionProblem& problem, const Args& args, Quantised which, int64_t b,
                 int64_t head, int64_t n) {
  const float* data = which == Quantised::kKeys ? args.k_descale : args.v_descale;
  return data == nullptr ? 1.0f : data[descale_place(problem, args, which, b, head, n)];
}

// What holds on every device, because no tensor is read for it: totals within the problem's, an
// index tensor and sinks exactly when the problem announced them, pointers where something is read
// or written, aligned to their elements, and outputs (out, lse, the workspace) that overlap
// neither inputs nor each other. Neither allocates nor throws anything but Error{kInvalidArgument}.
void check_pointers(const AttentionProblem& problem, const ForwardArgs& args);

// The above and, since host memory can be read, check_index_tensors.
void check_host_args(const AttentionProblem& problem, const ForwardArgs& args);

}  // namespace fa4::internal
