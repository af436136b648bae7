#include "cpu/store_row.h"

#include <bit>

namespace fa4::internal {
namespace {

// As float_to_bf16, without a branch, so that the compiler works on many at once.
uint16_t rounded_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>(value != value ? bits >> 16 | 0x40u : rounded);
}

}  // namespace

void store_row(DType dtype, const float* sums, float factor, int64_t dim, void* data,
               int64_t offset) {
  if (dtype == DType::kF32) {
    float* to = static_cast<float*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = sums[d] * factor;
  } else if (dtype == DType::kBF16) {
    uint16_t* to = static_cast<uint16_t*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = rounded_to_bf16(sums[d] * factor);
  } else {
    uint16_t* to = static_cast<uint16_t*>(data) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = float_to_f16(sums[d] * factor);
  }
}

}  // namespace fa4::internal
