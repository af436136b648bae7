// The approximations of .f32 and the gross ones of .f64, bit for bit those of an H200: what its
// special function unit returns (unit_*; interpolator.h), and the instructions that ptxas puts
// around it. unit_* take subnormals as zeros and return none.
//
// Special cases are those of the manual's tables ("Floating Point Instructions": rcp, sqrt, rsqrt,
// sin, cos, lg2, ex2, tanh, div; PTX ISA 9.7.3.8 and 9.7.3.13 to 9.7.3.22).
#pragma once

#include <algorithm>
#include <cmath>

#include "emulator/isa/formats.h"
#include "emulator/isa/interpolator.h"

namespace ptxemu {

inline constexpr uint32_t kInfinity32 = 0x7f800000;

// value * scale, a power of 2, for a value below 2^52 of which the upper 24 significant bits count.
PTXEMU_INLINE float truncated_float(int64_t value, double scale) {
  constexpr uint64_t kTwo52 = 0x4330000000000000;
  const double whole = std::bit_cast<double>(kTwo52 | static_cast<uint64_t>(value)) - 0x1p52;
  const uint64_t kept = std::bit_cast<uint64_t>(whole) & ~uint64_t{0x1fffffff};
  return static_cast<float>(std::bit_cast<double>(kept) * scale);
}

// `value` with the sign of `of`.
PTXEMU_INLINE float with_sign_of(uint32_t value, uint32_t of) {
  return float_of_bits((value & 0x7fffffff) | (of & 0x80000000));
}

// --- The unit -----------------------------------------------------------------------------------
// The argument in fixed point, 23 fractional bits, truncated; of a negative one the complement.
PTXEMU_INLINE float unit_ex2(float a) {
  const float magnitude = float_of_bits(bits_of_float(a) & 0x7fffffff);
  const auto fixed = static_cast<int32_t>((magnitude < 128.0f ? magnitude : 128.0f) * 0x1p23f);
  const int32_t negated = (fixed & 0x7fffff) == 0 ? -fixed : ~fixed;
  const int32_t of_a = a < 0.0f ? negated : fixed;
  const auto value = static_cast<int32_t>(interpolate_ex2(static_cast<uint32_t>(of_a) & 0x7fffff));
  const int32_t bits = (((of_a >> 23) + 126) * (1 << 23)) + value;
  const auto result = static_cast<uint32_t>(bits < 1 << 23 ? 0 : bits);
  return float_of_bits(a == a ? result : kNan32);
}

PTXEMU_INLINE float unit_rcp(float a) {
  const uint32_t of_a = bits_of_float(a), magnitude = of_a & 0x7fffffff;
  const auto value =
      static_cast<int32_t>(interpolate<RcpTable>(of_a & 0x7fffff) >> (RcpTable::kFraction - 24));
  const int32_t bits = (252 - static_cast<int32_t>(magnitude >> 23)) * (1 << 23) + value;
  auto result = static_cast<uint32_t>(bits < 1 << 23 ? 0 : bits);
  result = magnitude < 0x800000 ? kInfinity32 : result;
  result = magnitude == kInfinity32 ? 0 : result;
  return magnitude > kInfinity32 ? float_of_bits(kNan32) : with_sign_of(result, of_a);
}

// The mantissa of a positive number and the parity of its exponent, as the argument of a root.
PTXEMU_INLINE uint32_t root_argument(uint32_t bits) { return (bits ^ 0x800000) & 0xffffff; }

PTXEMU_INLINE float unit_rsqrt(float a) {
  const uint32_t of_a = bits_of_float(a), magnitude = of_a & 0x7fffffff;
  const uint32_t argument = root_argument(of_a);
  auto value =
      static_cast<uint32_t>(interpolate<RsqrtTable>(argument) >> (RsqrtTable::kFraction - 24));
  value = argument == 0 ? 1 << 24 : value;
  // 125 less half of the exponent, rounded down.
  uint32_t result = ((378 - (magnitude >> 23)) >> 1 << 23) + value;
  result = of_a == kInfinity32 ? 0 : result;
  result = of_a > kInfinity32 ? kNan32 : result;
  return float_of_bits(magnitude < 0x800000 ? kInfinity32 | (of_a & 0x80000000) : result);
}

PTXEMU_INLINE float unit_sqrt(float a) {
  const uint32_t of_a = bits_of_float(a), magnitude = of_a & 0x7fffffff;
  const auto value = static_cast<uint32_t>(interpolate<SqrtTable>(root_argument(of_a)) >>
                                           (SqrtTable::kFraction - 23));
  // 126 more than half of the exponent, rounded down.
  uint32_t result = (((magnitude >> 23) + 125) >> 1 << 23) + value;
  result = of_a == kInfinity32 ? of_a : result;
  result = of_a > kInfinity32 ? kNan32 : result;
  return float_of_bits(magnitude < 0x800000 ? of_a & 0x80000000 : result);
}

// Exponent and logarithm of the mantissa in fixed point, 36 fractional bits; if negative, the
// complement is the magnitude.
PTXEMU_INLINE float unit_lg2(float a) {
  const uint32_t of_a = bits_of_float(a), magnitude = of_a & 0x7fffffff;
  const int64_t exponent = static_cast<int32_t>(magnitude >> 23) - 127;
  const int64_t fraction = interpolate<Lg2Table>(of_a & 0x7fffff) >> (Lg2Table::kFraction - 36);
  const int64_t sum = exponent * (int64_t{1} << 36) + fraction;
  const float size = truncated_float(sum < 0 ? ~sum : sum, 0x1p-36);
  float result = sum < 0 ? -size : size;
  result = of_a == 0x3f800000 ? 0.0f : result;
  result = of_a == kInfinity32 ? a : result;
  result = of_a > kInfinity32 ? float_of_bits(kNan32) : result;
  return magnitude < 0x800000 ? float_of_bits(0xff800000) : result;
}

// The sine of `turns` / 2^25 turns, with the sign of `sign`.
PTXEMU_INLINE float unit_sine(uint32_t turns, uint32_t sign) {
  const uint32_t within = (turns >> 23 & 1) != 0 ? ~turns : turns;
  const float value = truncated_float(interpolate<SinTable>(within & 0x7fffff), 0x1p-38);
  return float_of_bits(bits_of_float(value) ^ ((turns << 7 ^ sign) & 0x80000000));
}

// Identity below 2^-8, 1 from 8 on. Of each octave between: its first segment, and how many
// segments it has, as a power of 2.
inline constexpr uint32_t kTanhFirst[16] = {0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43};
inline constexpr uint32_t kTanhSegmentBits[16] = {0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3};

PTXEMU_INLINE float unit_tanh(float a) {
  constexpr uint32_t kLeast = 0x3b800000, kMost = 0x41000000;
  const uint32_t of_a = bits_of_float(a), magnitude = of_a & 0x7fffffff;
  const uint32_t in_table = std::clamp(magnitude, kLeast, kMost - 1);
  const uint32_t octave = (in_table - kLeast) >> 23;
  const uint32_t argument =
      (kTanhFirst[octave] << 17) + ((in_table & 0x7fffff) >> (6 - kTanhSegmentBits[octave]));
  uint32_t result = bits_of_float(truncated_float(interpolate<TanhTable>(argument), 0x1p-39));
  result = magnitude < kLeast ? magnitude : result;
  result = magnitude >= kMost ? 0x3f800000 : result;
  return magnitude > kInfinity32 ? float_of_bits(kNan32) : with_sign_of(result, of_a);
}

// --- The instructions ---------------------------------------------------------------------------
// Without .ftz, arguments out of the unit's range are scaled into it and the result back.
PTXEMU_INLINE bool below_normal(float a) { return (bits_of_float(a) & 0x7f800000) == 0; }
PTXEMU_INLINE bool above_two126(float a) { return std::fabs(a) > 0x1p126f; }

struct Ex2 {
  template <bool kFlush>
  PTXEMU_INLINE static float of(float a) {
    if constexpr (kFlush) return unit_ex2(a);
    const bool scaled = a < -126.0f;
    const float result = unit_ex2(scaled ? a * 0.5f : a);
    return scaled ? result * result : result;
  }
};
struct Lg2 {
  template <bool kFlush>
  PTXEMU_INLINE static float of(float a) {
    if constexpr (kFlush) return unit_lg2(a);
    const bool scaled = below_normal(a);
    const float result = unit_lg2(scaled ? a * 0x1p24f : a);
    return canonical(scaled ? result - 24.0f : result);
  }
};
struct Rcp {
  template <bool kFlush>
  PTXEMU_INLINE static float of(float a) {
    if constexpr (kFlush) return unit_rcp(a);
    const float scale = above_two126(a) ? 0.25f : below_normal(a) ? 0x1p24f : 1.0f;
    return canonical(unit_rcp(a * scale) * scale);
  }
};
struct Sqrt {
  template <bool kFlush>
  PTXEMU_INLINE static float of(float a) {
    if constexpr (kFlush) return unit_sqrt(a);
    const bool scaled = below_normal(a);
    const float result = unit_sqrt(scaled ? a * 0x1p24f : a);
    return canonical(scaled ? result * 0x1p-12f : result);
  }
};
struct Rsqrt {
  template <bool kFlush>
  PTXEMU_INLINE static float of(float a) {
    if constexpr (kFlush) return unit_rsqrt(a);
    const bool scaled = below_normal(a);
    const float result = unit_rsqrt(scaled ? a * 0x1p24f : a);
    return canonical(scaled ? result * 0x1p12f : result);
  }
};

// |a| times the nearest float to 1 / 2 pi, rounded toward zero to a float; of that 25 fractional
// bits, and whole turns are left out.
PTXEMU_INLINE uint32_t turns_of(float a) {
  constexpr uint64_t kInverse = 0xa2f983;  // times 2^-26
  const uint32_t bits = bits_of_float(a);
  const uint64_t product = ((bits & 0x7fffff) | 0x800000) * kInverse;
  const bool carry = product >> 47 != 0;
  const auto kept = static_cast<uint32_t>(product >> (carry ? 24 : 23));
  const int32_t shift = static_cast<int32_t>(bits >> 23 & 0xff) - (carry ? 127 : 128);
  const uint32_t left = shift < 0 ? 0 : shift > 31 ? 31 : shift;
  const uint32_t right = shift > 0 ? 0 : shift < -31 ? 31 : -shift;
  return kept << left >> right & 0x1ffffff;
}
PTXEMU_INLINE float nan_unless_finite(float of_a, float result) {
  return (bits_of_float(of_a) & kInfinity32) == kInfinity32 ? float_of_bits(kNan32) : result;
}
struct Sin {
  template <bool>
  PTXEMU_INLINE static float of(float a) {
    return nan_unless_finite(a, unit_sine(turns_of(a), bits_of_float(a)));
  }
};
struct Cos {
  template <bool>
  PTXEMU_INLINE static float of(float a) {
    return nan_unless_finite(a, unit_sine(turns_of(a) + (1u << 23), 0));
  }
};
struct Tanh {
  template <bool>
  PTXEMU_INLINE static float of(float a) {
    return unit_tanh(a);
  }
};

// "div.approx.f32" and, kFull, "div.full.f32": a times the reciprocal of b.
template <bool kFull, bool kFlush>
PTXEMU_INLINE float approx_div(float a, float b) {
  const bool large = kFull && above_two126(b), small = !kFlush && below_normal(b);
  const float scale = large ? 0.25f : small ? 0x1p24f : 1.0f;
  const float numerator = flush_if<kFlush>(flush_if<kFlush>(a) * scale);
  const float denominator = flush_if<kFlush>(flush_if<kFlush>(b) * scale);
  const float reciprocal = unit_rcp(denominator), product = numerator * reciprocal;
  if constexpr (!kFlush) return canonical(product);
  // Its last multiplication flushes as mul.ftz does: what rounds to less than the normal numbers
  // with any exponent. Where the scaled one overflows or is NaN, the product is not so small.
  const bool tiny = std::fabs((numerator * 0x1p64f) * reciprocal) < 0x1p-62f;
  return canonical(tiny ? std::copysign(0.0f, product) : product);
}

// --- The upper halves of .f64 -------------------------------------------------------------------
// The unit's value for a mantissa of 20 bits, truncated to 20 bits.
PTXEMU_INLINE uint32_t unit_rcp64(uint32_t a) {
  const uint32_t sign = a & 0x80000000, magnitude = a & 0x7fffffff;
  if (magnitude > 0x7ff00000) return kNan32;
  if (magnitude == 0x7ff00000) return sign;
  if (magnitude < 0x100000) return sign | 0x7ff00000;
  const auto value =
      static_cast<int32_t>(interpolate<RcpTable>((a & 0xfffff) << 3) >> (RcpTable::kFraction - 21));
  const int32_t bits = (2044 - static_cast<int32_t>(magnitude >> 20)) * (1 << 20) + value;
  return sign | static_cast<uint32_t>(bits < 1 << 20 ? 0 : bits);
}
PTXEMU_INLINE uint32_t unit_rsqrt64(uint32_t a) {
  const uint32_t sign = a & 0x80000000, magnitude = a & 0x7fffffff;
  if (magnitude > 0x7ff00000) return kNan32;
  if (magnitude < 0x100000) return sign | 0x7ff00000;
  if (sign != 0) return kNan32;
  if (magnitude == 0x7ff00000) return 0;
  const uint32_t argument = root_argument(a << 3);
  const auto value =
      static_cast<uint32_t>(interpolate<RsqrtTable>(argument) >> (RsqrtTable::kFraction - 21));
  return ((3066 - (magnitude >> 20)) >> 1 << 20) + (argument == 0 ? 1 << 21 : value);
}

// --- Halves -------------------------------------------------------------------------------------
// Formats whose store truncates (formats.h has those that round); NaN to the canonical NaN.
struct TruncatedHalf {
  PTXEMU_INLINE static float load(uint16_t x) { return half_to_float(x); }
  PTXEMU_INLINE static uint16_t store(float x) {
    const uint32_t bits = bits_of_float(x), magnitude = bits & 0x7fffffff;
    // A subnormal half counts units of 2^-24.
    const auto small = static_cast<uint32_t>(
        static_cast<int32_t>(float_of_bits(magnitude < 0x38800000 ? magnitude : 0) * 0x1p24f));
    uint32_t half = magnitude < 0x38800000 ? small : (magnitude - 0x38000000) >> 13;
    half = magnitude >= 0x47800000 ? 0x7c00 : half;
    half |= bits >> 16 & 0x8000;
    return static_cast<uint16_t>(magnitude > kInfinity32 ? kNan16 : half);
  }
};
struct TruncatedBfloat {
  PTXEMU_INLINE static float load(uint16_t x) { return bfloat_to_float(x); }
  PTXEMU_INLINE static uint16_t store(float x) {
    const uint32_t bits = bits_of_float(x);
    return static_cast<uint16_t>((bits & 0x7fffffff) > kInfinity32 ? kNan16 : bits >> 16);
  }
};

}  // namespace ptxemu
