// The approximations of .f32, each in one place. What the hardware gives is within the manual's
// bounds but not correctly rounded; here the value is computed in double and rounded once, so that
// it is the nearest float in all but about one of 10^7 arguments. The same bits on every host: no
// contraction, no function of the C library but sqrt, and sin, cos and tanh in double.
//
// Special cases are those of the manual's tables ("Floating Point Instructions": rcp, sqrt, rsqrt,
// sin, cos, lg2, ex2, tanh; PTX ISA 9.7.3.13 to 9.7.3.22).
#pragma once

#include <cmath>

#include "emulator/isa/formats.h"

namespace ptxemu {

// 2^f for |f| <= 0.5, error below 1e-16 relative: the exponential series of f ln 2.
PTXEMU_INLINE double exp2_fraction(double f) {
  const double x = f * 0.69314718055994530942;
  double p = 1.0 / 6227020800.0;
  p = p * x + 1.0 / 479001600.0;
  p = p * x + 1.0 / 39916800.0;
  p = p * x + 1.0 / 3628800.0;
  p = p * x + 1.0 / 362880.0;
  p = p * x + 1.0 / 40320.0;
  p = p * x + 1.0 / 5040.0;
  p = p * x + 1.0 / 720.0;
  p = p * x + 1.0 / 120.0;
  p = p * x + 1.0 / 24.0;
  p = p * x + 1.0 / 6.0;
  p = p * x + 0.5;
  p = p * x + 1.0;
  return p * x + 1.0;
}

PTXEMU_INLINE float approx_ex2(float a) {
  // Beyond these, the result is 0 or infinity.
  float clamped = a < 129.0f ? a : 129.0f;
  clamped = clamped > -160.0f ? clamped : -160.0f;
  const double x = clamped;
  constexpr double kRound = 0x1.8p52;
  const double shifted = x + kRound;  // its low bits are the nearest integer
  const double fraction = x - (shifted - kRound);
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  const double value = exp2_fraction(fraction) * std::bit_cast<double>(exponent);
  const float result = static_cast<float>(value);
  return a == a ? result : float_of_bits(kNan32);
}

PTXEMU_INLINE float approx_lg2(float a) {
  // As a double every subnormal is normal.
  const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(a));
  // The mantissa in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const uint64_t moved = bits - kSqrtHalf;
  const int64_t exponent = static_cast<int64_t>(moved) >> 52;
  const double mantissa = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52));
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = s * s;
  double p = 1.0 / 23.0;
  p = p * z + 1.0 / 21.0;
  p = p * z + 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  p = p * z + 1.0;
  const double log = p * s * 2.8853900817779268147;  // 2 / ln 2
  // An integer of at most 11 bits as a double.
  const double whole =
      std::bit_cast<double>(0x4338000000000000 + static_cast<uint64_t>(exponent)) - 0x1.8p52;
  float result = static_cast<float>(whole + log);
  const uint32_t of_a = bits_of_float(a);
  result = (of_a & 0x7fffffff) == 0 ? float_of_bits(0xff800000) : result;
  result = of_a == 0x7f800000 ? a : result;
  return a >= 0.0f ? result : float_of_bits(kNan32);
}

PTXEMU_INLINE float approx_rcp(float a) { return canonical(1.0f / a); }
PTXEMU_INLINE float approx_sqrt(float a) { return canonical(__builtin_sqrtf(a)); }
PTXEMU_INLINE float approx_rsqrt(float a) {
  return canonical(static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(a))));
}

inline float approx_sin(float a) {
  return std::isinf(a) ? float_of_bits(kNan32)
                       : canonical(static_cast<float>(std::sin(static_cast<double>(a))));
}
inline float approx_cos(float a) {
  return std::isinf(a) ? float_of_bits(kNan32)
                       : canonical(static_cast<float>(std::cos(static_cast<double>(a))));
}
inline float approx_tanh(float a) {
  return canonical(static_cast<float>(std::tanh(static_cast<double>(a))));
}

// "div.approx.f32": a * (1 / b), where 1 / b is 0 for |b| above 2^126.
PTXEMU_INLINE float approx_div(float a, float b) {
  const uint32_t magnitude = bits_of_float(b) & 0x7fffffff;
  const bool huge = magnitude > 0x7e800000 && magnitude < 0x7f800000;
  const float sign = float_of_bits(bits_of_float(b) & 0x80000000);
  return canonical(huge ? a * sign : a / b);
}

}  // namespace ptxemu
