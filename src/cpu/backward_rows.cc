#include "cpu/backward_rows.h"

#include <cstring>

namespace fa4::internal {

void store_row(DType dtype, const float* sums, float factor, int64_t dim, void* data,
               int64_t offset) {
  if (dtype == DType::kF32) {
    float* to = static_cast<float*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = sums[d] * factor;
    return;
  }
  if (dtype == DType::kBF16) {
    uint16_t* to = static_cast<uint16_t*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = float_to_bf16(sums[d] * factor);
    return;
  }
  for (int64_t d = 0; d < dim; ++d) store_from_float(dtype, data, offset + d, sums[d] * factor);
}

void widen(int64_t count, char* memory) {
  // From the last on: a double lies where two floats lay.
  for (int64_t i = count - 1; i >= 0; --i) {
    float value;
    std::memcpy(&value, memory + i * 4, 4);
    const double wide = value;
    std::memcpy(memory + i * 8, &wide, 8);
  }
}

}  // namespace fa4::internal
