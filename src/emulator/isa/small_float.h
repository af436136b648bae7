// Floating-point formats of at most 32 bits, as numbers of exponent and mantissa bits ("Alternate
// Floating-Point Data Formats"; PTX ISA 5.2.3).
#pragma once

#include <cmath>
#include <cstdint>

#include "emulator/isa/formats.h"

namespace ptxemu {

struct SmallFormat {
  int mantissa, bias;
  uint32_t max_code;  // the largest finite number
  uint32_t nan_code;  // what NaN becomes: max_code where the format has none
  bool has_infinity;  // max_code + 1
  uint32_t sign_bit;
};
inline constexpr SmallFormat kF16Format{10, 15, 0x7bff, 0x7fff, true, 0x8000};
inline constexpr SmallFormat kBF16Format{7, 127, 0x7f7f, 0x7fff, true, 0x8000};
inline constexpr SmallFormat kF32Format{23, 127, 0x7f7fffff, 0x7fffffff, true, 0x80000000};
// Of .tf32, whose 19 bits are the upper ones of 32.
inline constexpr SmallFormat kTF32Format{10, 127, 0x3fbff, 0x3ffff, true, 0x40000};
inline constexpr SmallFormat kE4M3Format{3, 7, 0x7e, 0x7f, false, 0x80};
inline constexpr SmallFormat kE5M2Format{2, 15, 0x7b, 0x7f, true, 0x80};
inline constexpr SmallFormat kE2M3Format{3, 1, 0x1f, 0x1f, false, 0x20};
inline constexpr SmallFormat kE3M2Format{2, 3, 0x1f, 0x1f, false, 0x20};
inline constexpr SmallFormat kE2M1Format{1, 1, 0x7, 0x7, false, 0x8};

enum class SmallRound : uint8_t { kNearest, kZero, kDown, kUp, kNearestAway, kStochastic };
struct SmallRounding {
  SmallRound round = SmallRound::kNearest;
  bool finite = false;  // .satfinite
  bool relu = false;    // negative numbers become 0
  double random = 0;    // of kStochastic: in [0, 1)
};

// The code of a number, rounded as asked. Slow and for every format.
uint32_t encode_small(double x, const SmallFormat& format, const SmallRounding& rounding);

// To nearest, ties to even, too large numbers to the largest: in a form that vectorises. `a` is
// float. kMantissa, kBias ... as in SmallFormat.
template <const SmallFormat& kFormat, bool kRelu>
PTXEMU_INLINE uint32_t encode_finite(float x) {
  constexpr int kShift = 23 - kFormat.mantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.bias) << 23;
  constexpr uint32_t kLeastNormal = static_cast<uint32_t>(128 - kFormat.bias) << 23;
  // Its last place is that of the format's subnormal numbers.
  constexpr uint32_t kMagic = static_cast<uint32_t>(128 - kFormat.bias + kShift) << 23;
  const uint32_t bits = bits_of_float(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal =
      (magnitude - kRebias + ((1u << (kShift - 1)) - 1) + (magnitude >> kShift & 1)) >> kShift;
  const uint32_t small = bits_of_float(float_of_bits(magnitude) + float_of_bits(kMagic)) - kMagic;
  uint32_t code = magnitude < kLeastNormal ? small : normal;
  code = magnitude >= 0x7f000000 || code > kFormat.max_code ? kFormat.max_code : code;
  const bool negative = (bits & 0x80000000) != 0;
  code = negative ? (kRelu ? 0 : code | kFormat.sign_bit) : code;
  return magnitude > 0x7f800000 ? kFormat.nan_code : code;
}

// The number of a code of 8 bits or fewer, exactly.
template <const SmallFormat& kFormat>
PTXEMU_INLINE float decode_small(uint32_t code) {
  const uint32_t magnitude = code & (kFormat.sign_bit - 1);
  constexpr float kScale = std::bit_cast<float>(static_cast<uint32_t>(254 - kFormat.bias) << 23);
  uint32_t bits = bits_of_float(float_of_bits(magnitude << (23 - kFormat.mantissa)) * kScale);
  if (kFormat.nan_code != kFormat.max_code) {
    bits = magnitude > kFormat.max_code ? kNan32 : bits;
    bits = kFormat.has_infinity && magnitude == kFormat.max_code + 1 ? 0x7f800000 : bits;
  }
  return float_of_bits(bits | ((code & kFormat.sign_bit) != 0 ? 0x80000000 : 0));
}

}  // namespace ptxemu
