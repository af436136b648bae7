#include "cpu/backward_rows.h"

#include <cstring>

namespace fa4::internal {

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
