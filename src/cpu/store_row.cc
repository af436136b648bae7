#include "cpu/store_row.h"

namespace fa4::internal {

void store_row(CpuIsa isa, DType dtype, const float* sums, float factor, int64_t dim, void* data,
               int64_t offset) {
  if (has_avx512(isa)) return store_row_avx512(dtype, sums, factor, dim, data, offset);
  if (dtype == DType::kF32) {
    float* to = static_cast<float*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = sums[d] * factor;
  } else if (dtype == DType::kBF16) {
    uint16_t* to = static_cast<uint16_t*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = float_to_bf16(sums[d] * factor);
  } else {
    uint16_t* to = static_cast<uint16_t*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = float_to_f16(sums[d] * factor);
  }
}

}  // namespace fa4::internal
