// What one merge of partial results is given: attention over parts of the keys, to be attention
// over all of them. With lse = log sum exp(lse_i): out = sum exp(lse_i - lse) out_i.
#pragma once

#include <cstddef>
#include <cstdint>

#include "problem/attention_problem.h"

namespace fa4::internal {

// Shapes: every part's out and the merged one (batch, seqlen, heads, head_dim), every lse (batch,
// heads, seqlen). Packed results are one batch entry of all rows.
struct MergeArgs {
  DType dtype = DType::kF32;  // of the parts
  DType out_dtype{};          // of the merged out; none: dtype
  int64_t num_parts = 0;
  int64_t batch = 0;
  int64_t seqlen = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  const void* const* part_outs = nullptr;  // num_parts pointers each, in host memory
  const float* const* part_lses = nullptr;
  void* out = nullptr;
  float* lse = nullptr;                // contiguous; NULL: not wanted
  Strides part_out, part_lse, output;  // all zero: contiguous
  void* stream = nullptr;

  int64_t rows() const { return batch * seqlen * heads; }
};

// Defaults filled in. An output may be one of the parts, in its place and of its type, and
// otherwise overlaps no input and not the other output. Throws Error{kInvalidArgument}.
MergeArgs checked(MergeArgs args);

}  // namespace fa4::internal
