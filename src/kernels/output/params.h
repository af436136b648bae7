// The one parameter of the kernel that merges partial results (output/merge.cuh). Host and device.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/integers.h"

namespace fa4 {

// Elements between neighbours.
struct MergeStrides {
  int64_t batch;
  int64_t seqlen;
  int64_t head;
};

template <int kParts>
struct MergeParams {
  const void* outs[kParts];
  const float* lses[kParts];
  void* out;
  float* lse;  // (batch, heads, seqlen), or null
  MergeStrides part_out;
  MergeStrides part_lse;
  MergeStrides merged;
  int64_t rows;  // batch seqlen heads
  int32_t num_parts;
  int32_t seqlen;
  int32_t heads;
  int32_t head_dim;
  FloatType part_type;
  FloatType merged_type;
};

}  // namespace fa4
