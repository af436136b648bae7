// Divisions and multiples that round up, and products, of counts: none is negative.
#pragma once

#include <cstdint>
#include <limits>

namespace fa4::internal {

constexpr int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

// The largest number where 64 bits do not hold the product: to be compared with a limit. `a` may be
// negative.
constexpr int64_t capped_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace fa4::internal
