// A row of sums as a row of a tensor.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "plan/cpu_kernel_spec.h"

namespace fa4::internal {

// `sums` times `factor` as `dim` elements of `dtype`, which is f32, f16 or bf16, from element
// `offset` of `data` on; `dim` is a multiple of 8. The bits do not depend on the path.
void store_row(CpuIsa isa, DType dtype, const float* sums, float factor, int64_t dim, void* data,
               int64_t offset);

// The same for paths with AVX-512.
void store_row_avx512(DType dtype, const float* sums, float factor, int64_t dim, void* data,
                      int64_t offset);

}  // namespace fa4::internal
