// What the blocks of rows and of keys of a tiled backward do with a row of their memory.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fa4::internal {

template <class T>
T* at(char* memory) {
  return reinterpret_cast<T*>(memory);
}

// Sums times `factor` as `dim` elements of `dtype` from `offset` on.
void store_row(DType dtype, const float* sums, float factor, int64_t dim, void* data,
               int64_t offset);

// Floats to doubles in their place.
void widen(int64_t count, char* memory);

}  // namespace fa4::internal
