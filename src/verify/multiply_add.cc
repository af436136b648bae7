#include "verify/multiply_add.h"

#include <algorithm>

#include "core/sanitizers.h"

// The wider instruction sets change the speed only: nothing is contracted or reordered. Sanitizers
// cannot run the resolver that picks a clone. clang 16 makes none for a function that its header
// declares: every machine would get the first clone.
#if defined(__x86_64__) && !defined(__clang__) && !defined(FA4_ADDRESS_SANITIZER) && \
    !defined(FA4_THREAD_SANITIZER)
#define FA4_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FA4_VECTOR_CLONES
#endif

namespace fa4::internal {

FA4_VECTOR_CLONES void multiply_add(int64_t rows, int64_t inner, int64_t cols, const double* a,
                                    int64_t lda, const double* b, int64_t ldb, double* c,
                                    int64_t ldc) {
  for (int64_t j = 0; j < cols; j += 128) {
    const int64_t width = std::min<int64_t>(128, cols - j);
    for (int64_t i = 0; i < inner; i += 4) {
      for (int64_t r = 0; r < rows; ++r) {
        const double* x = a + r * lda + i;
        const double* y = b + i * ldb + j;
        double* __restrict z = c + r * ldc + j;
        if (i + 4 <= inner) {
          const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
          for (int64_t n = 0; n < width; ++n) {
            z[n] += (x0 * y[n] + x1 * y[ldb + n]) + (x2 * y[2 * ldb + n] + x3 * y[3 * ldb + n]);
          }
        } else {
          for (int64_t k = 0; k < inner - i; ++k) {
            for (int64_t n = 0; n < width; ++n) z[n] += x[k] * y[k * ldb + n];
          }
        }
      }
    }
  }
}

}  // namespace fa4::internal
