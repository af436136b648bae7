// One number of a tensor whose type the caller's template knows.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fa4::internal {

template <DType kType>
float load(const void* data, int64_t index) {
  if constexpr (kType == DType::kF32) return static_cast<const float*>(data)[index];
  if constexpr (kType == DType::kE4M3)
    return e4m3_to_float(static_cast<const uint8_t*>(data)[index]);
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return kType == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
}

}  // namespace fa4::internal
