// The oracle's inner product of matrices, in double precision.
#pragma once

#include <cstdint>

namespace fa4::internal {

// c (rows x cols) += a (rows x inner) b (inner x cols); row-major with the given row strides.
void multiply_add(int64_t rows, int64_t inner, int64_t cols, const double* a, int64_t lda,
                  const double* b, int64_t ldb, double* c, int64_t ldc);

}  // namespace fa4::internal
