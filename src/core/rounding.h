// Divisions and multiples that round up, of counts: none is negative.
#pragma once

#include <cstdint>

namespace fa4::internal {

constexpr int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace fa4::internal
