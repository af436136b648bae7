// The one parameter of the kernel that adds up f32 matrices (sums/sum.cuh). Host and device.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/integers.h"

namespace fa4 {

struct SumParams {
  const float* parts;
  int64_t part_stride;  // elements from matrix to matrix
  int64_t part_pitch;   // elements from row to row
  void* to;             // of to_type
  int64_t to_pitch;
  int64_t elements;  // rows columns
  uint32_t columns;
  int32_t num_parts;
  FloatType to_type;
};

}  // namespace fa4
