// A row of sums as a row of a tensor.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fa4::internal {

// `sums` times `factor` as `dim` elements of `dtype`, which is f32, f16 or bf16, from element
// `offset` of `data` on.
void store_row(DType dtype, const float* sums, float factor, int64_t dim, void* data,
               int64_t offset);

}  // namespace fa4::internal
