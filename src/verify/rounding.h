// Doubles rounded to an element type, once, to nearest even: what the type itself would hold.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype.h"

namespace fa4::internal {

struct FloatFormat {
  int mantissa_bits;  // stored
  int min_exponent;   // of the smallest normal number
  double largest;     // finite
  // What is added and taken away again to round to the grid of the subnormal numbers.
  double subnormal_magic() const { return std::ldexp(1.5, min_exponent - mantissa_bits + 52); }
};

constexpr FloatFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {10, -14, 65504.0};
    case DType::kBF16: return {7, -126, 0x1.fep127};
    case DType::kE4M3: return {3, -6, 448.0};
    case DType::kF32: break;
  }
  return {23, -126, 0x1.fffffep127};
}

// A rounding prepared for many values of one type.
class Rounding {
 public:
  explicit Rounding(DType dtype)
      : dropped_(52 - format_of(dtype).mantissa_bits),
        smallest_normal_(std::ldexp(1.0, format_of(dtype).min_exponent)),
        magic_(format_of(dtype).subnormal_magic()),
        largest_(format_of(dtype).largest) {}

  double operator()(double x) const {
    if (!(std::fabs(x) >= smallest_normal_)) return (x + magic_) - magic_;  // NaN stays NaN
    if (std::isinf(x)) return x;
    uint64_t bits = std::bit_cast<uint64_t>(x);
    bits += (uint64_t{1} << (dropped_ - 1)) - 1 + ((bits >> dropped_) & 1);
    bits &= ~((uint64_t{1} << dropped_) - 1);
    const double rounded = std::bit_cast<double>(bits);
    if (std::fabs(rounded) > largest_) {
      return std::copysign(std::numeric_limits<double>::infinity(), x);
    }
    return rounded;
  }

 private:
  int dropped_;
  double smallest_normal_;
  double magic_;
  double largest_;
};

// Distance between neighbours of the type at `x`.
inline double ulp_at(DType dtype, double x) {
  const FloatFormat format = format_of(dtype);
  const int exponent = x == 0 || !std::isfinite(x) ? format.min_exponent : std::ilogb(x);
  return std::ldexp(1.0, std::max(exponent, format.min_exponent) - format.mantissa_bits);
}

}  // namespace fa4::internal
