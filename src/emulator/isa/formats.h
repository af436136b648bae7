// 16-bit floating-point formats to float and back, and what every f32 result goes through; written
// so that loops over them become vector instructions. NaN results are the canonical NaN of the
// format, as the hardware gives ("Floating Point Instructions"; PTX ISA 9.7.3: 0x7fffffff of .f32,
// 0x7fff of .f16 and .bf16).
#pragma once

#include <bit>
#include <cstdint>

#include "emulator/isa/lanes.h"
#include "emulator/machine/first_nan.h"

namespace ptxemu {

inline constexpr uint32_t kNan32 = 0x7fffffff;
inline constexpr uint16_t kNan16 = 0x7fff;

PTXEMU_INLINE uint32_t bits_of_float(float x) { return std::bit_cast<uint32_t>(x); }
PTXEMU_INLINE float float_of_bits(uint32_t x) { return std::bit_cast<float>(x); }

// Subnormal to zero of the same sign.
PTXEMU_INLINE float flush(float x) {
  const uint32_t bits = bits_of_float(x);
  return float_of_bits((bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits);
}
template <bool kFlush>
PTXEMU_INLINE float flush_if(float x) {
  return kFlush ? flush(x) : x;
}
PTXEMU_INLINE float canonical(float x) { return x == x ? x : float_of_bits(kNan32); }
// [0, 1]; NaN to +0.
PTXEMU_INLINE float saturate_unit(float x) {
  const float low = x > 0.0f ? x : 0.0f;
  return low < 1.0f ? low : 1.0f;
}

// --- f16 ----------------------------------------------------------------------------------------
PTXEMU_INLINE float half_to_float(uint16_t half) {
  const uint32_t h = half;
  const uint32_t magnitude = (h & 0x7fff) << 13;
  const uint32_t scaled = bits_of_float(float_of_bits(magnitude) * 0x1p112f);
  const uint32_t value = magnitude >= 0x7c00u << 13 ? magnitude | 0x7f800000 : scaled;
  return float_of_bits(value | (h & 0x8000) << 16);
}
PTXEMU_INLINE uint16_t float_to_half(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Adding 0.5 puts the last place of a subnormal half at the last place of the sum.
  const uint32_t small = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000;
  uint32_t half = magnitude < 0x38800000 ? small : normal;
  half = magnitude >= 0x47800000 ? 0x7c00 : half;
  half = half > 0x7c00 ? 0x7c00 : half;
  half |= bits >> 16 & 0x8000;
  return static_cast<uint16_t>(magnitude > 0x7f800000 ? kNan16 : half);
}
// --- bf16 ---------------------------------------------------------------------------------------
PTXEMU_INLINE float bfloat_to_float(uint16_t x) {
  return float_of_bits(static_cast<uint32_t>(x) << 16);
}
PTXEMU_INLINE uint16_t float_to_bfloat(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? kNan16 : rounded);
}

// A value and the exact remainder of it, as one double that any rounding to far fewer bits rounds
// right: the last bit is set where the remainder is not zero (round to odd).
PTXEMU_INLINE double to_odd(double value, double remainder) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const bool away = (remainder > 0) == (value > 0);
  const uint64_t odd = (bits & 1) != 0 ? bits : away ? bits + 1 : bits - 1;
  const bool exact = !(remainder != 0) || value == 0 || value != value || value - value != 0;
  return exact ? value : std::bit_cast<double>(odd);
}
// a + b, exactly value + remainder. No overflow in double for what comes from float.
PTXEMU_INLINE double two_sum(double a, double b, double* remainder) {
  const double sum = a + b;
  const double b_part = sum - a;
  *remainder = (a - (sum - b_part)) + (b - b_part);
  return sum;
}
// a * b + c of numbers of at most 24 bits, to be rounded once to at most 24 bits.
PTXEMU_INLINE double fused_to_odd(double a, double b, double c) {
  double remainder;
  const double sum = two_sum(a * b, c, &remainder);
  return to_odd(sum, remainder);
}

// A double that is the result of to_odd, rounded to nearest to the format: first to odd in float.
PTXEMU_INLINE float float_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  const uint32_t bits = bits_of_float(nearest);
  // Towards zero, then the last bit set when that was not exact.
  const bool beyond = (back > x) == (x > 0);
  const uint32_t cut = beyond ? bits - 1 : bits;
  return back == x || x != x || x - x != 0 ? nearest : float_of_bits(cut | 1);
}

// The two formats by name, for templates.
struct HalfFormat {
  PTXEMU_INLINE static float load(uint16_t x) { return half_to_float(x); }
  PTXEMU_INLINE static uint16_t store(float x) { return float_to_half(x); }
};
struct BfloatFormat {
  PTXEMU_INLINE static float load(uint16_t x) { return bfloat_to_float(x); }
  PTXEMU_INLINE static uint16_t store(float x) { return float_to_bfloat(x); }
};

}  // namespace ptxemu
