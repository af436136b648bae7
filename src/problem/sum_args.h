// What one sum of f32 matrices is given: terms of gradients, from several calls or several ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace fa4::internal {

// Matrix i begins `part_stride` bytes behind matrix i - 1. They are added in their order, in f32,
// and rounded once. `to` may be the first of them, in its place.
struct SumArgs {
  const float* parts = nullptr;
  int64_t part_stride = 0;  // bytes, a multiple of 4; also negative
  int num_parts = 0;        // 1 or more
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t part_pitch = 0;  // elements from row to row
  void* to = nullptr;
  DType to_type = DType::kF32;
  int64_t to_pitch = 0;
};

}  // namespace fa4::internal
