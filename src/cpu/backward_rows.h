// What the blocks of rows and of keys of a tiled backward do with a row of their memory.
#pragma once

#include <cstdint>

namespace fa4::internal {

template <class T>
T* at(char* memory) {
  return reinterpret_cast<T*>(memory);
}

// Floats to doubles in their place.
void widen(int64_t count, char* memory);

}  // namespace fa4::internal
