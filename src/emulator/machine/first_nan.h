// Which NaN a result of .f64 is.
#pragma once

#include <bit>
#include <cstdint>

namespace ptxemu {

// Results of .f64 that are NaN: the NaN of the operands that comes first, made quiet, else one with
// the sign set; as an H200 gives them.
inline constexpr uint64_t kQuietBit = 0x0008000000000000;
[[gnu::always_inline]] inline bool is_nan(double x) { return x != x; }
[[gnu::always_inline]] inline double first_nan(double result, double first, double second) {
  const uint64_t invalid = 0xfff8000000000000;
  uint64_t bits = is_nan(result) ? invalid : std::bit_cast<uint64_t>(result);
  bits = is_nan(second) ? std::bit_cast<uint64_t>(second) | kQuietBit : bits;
  return std::bit_cast<double>(is_nan(first) ? std::bit_cast<uint64_t>(first) | kQuietBit : bits);
}
[[gnu::always_inline]] inline double first_nan(double result, double first, double second,
                                               double third) {
  const double of_two = first_nan(result, second, third);
  return is_nan(first) ? first_nan(result, first, first) : of_two;
}

}  // namespace ptxemu
