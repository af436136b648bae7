// Sums, products and fused products of float in every rounding mode, exact, without the host's
// rounding mode, and so that loops over them become vector instructions. Directed results come from
// the result to nearest and the sign of its error ("Floating Point Instructions"; PTX ISA 9.7.3).
#pragma once

#include <cmath>

#include "emulator/isa/formats.h"

namespace ptxemu {

enum class Round : uint8_t { kNearest, kZero, kDown, kUp };

// The next float below (towards minus infinity) or above; x is no NaN, and not an infinity that
// has none.
PTXEMU_INLINE float next_down(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t moved = bits & 0x80000000 ? bits + 1 : bits - 1;
  return float_of_bits((bits & 0x7fffffff) == 0 ? 0x80000001 : moved);
}
PTXEMU_INLINE float next_up(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t moved = bits & 0x80000000 ? bits - 1 : bits + 1;
  return float_of_bits((bits & 0x7fffffff) == 0 ? 0x00000001 : moved);
}

// `nearest`, of a number whose exact value is nearest + error (of which only the sign counts), in
// another mode.
template <Round kRound>
PTXEMU_INLINE float directed(float nearest, double error) {
  if constexpr (kRound == Round::kNearest) return nearest;
  const bool below = kRound == Round::kDown || (kRound == Round::kZero && nearest > 0);
  const bool above = kRound == Round::kUp || (kRound == Round::kZero && nearest < 0);
  const float down = next_down(nearest), up = next_up(nearest);
  float result = nearest;
  result = below && error < 0 ? down : result;
  result = above && error > 0 ? up : result;
  return result;
}

// What value + remainder (value is its nearest double) is in float.
template <Round kRound>
PTXEMU_INLINE float round_sum(double value, double remainder) {
  if constexpr (kRound == Round::kNearest) {
    return static_cast<float>(to_odd(value, remainder));
  }
  const float nearest = static_cast<float>(value);
  const double difference = value - static_cast<double>(nearest);
  const double error = difference != 0 ? difference : remainder;
  // Of an infinity that the operands made there is no error: value - value is NaN there.
  return directed<kRound>(nearest, error);
}

// A sum that is exactly zero is -0 when it is rounded down, unless both terms are +0.
template <Round kRound>
PTXEMU_INLINE float zero_sum(float sum, double a, double b) {
  if constexpr (kRound != Round::kDown) return sum;
  const bool negative = std::bit_cast<int64_t>(a) < 0 || std::bit_cast<int64_t>(b) < 0;
  return sum == 0 && a + b == 0 && negative ? -0.0f : sum;
}

template <Round kRound>
PTXEMU_INLINE float add_rounded(float a, float b) {
  if constexpr (kRound == Round::kNearest) return a + b;
  double remainder;
  const double sum = two_sum(a, b, &remainder);
  return zero_sum<kRound>(round_sum<kRound>(sum, remainder), a, b);
}
template <Round kRound>
PTXEMU_INLINE float mul_rounded(float a, float b) {
  if constexpr (kRound == Round::kNearest) return a * b;
  return round_sum<kRound>(static_cast<double>(a) * static_cast<double>(b), 0);
}
// The least magnitude that .ftz leaves a number when it is rounded to nearest.
inline constexpr double kLeastUnflushed = 0x1p-126 - 0x1p-151;
// Whether a number of the exact value value + remainder (of which only the sign counts) is one that
// .ftz makes zero: below the normal numbers when it is rounded to 24 bits and any exponent, as an
// H100 has it. Where it was rounded to the least of the normal numbers, that may be so still.
PTXEMU_INLINE bool flushes(Round round, double value, double remainder) {
  const double magnitude = std::fabs(value), beyond = value < 0 ? -remainder : remainder;
  const bool away = round == Round::kUp ? value > 0 : round == Round::kDown && value < 0;
  if (away) {
    const double most = 0x1p-126 - 0x1p-150;
    return magnitude < most || (magnitude == most && beyond <= 0);
  }
  const double least = round == Round::kNearest ? kLeastUnflushed : 0x1p-126;
  return magnitude < least || (magnitude == least && beyond < 0);
}

template <Round kRound>
PTXEMU_INLINE float fma_rounded(float a, float b, float c) {
  if constexpr (kRound == Round::kNearest) return __builtin_fmaf(a, b, c);
  const double product = static_cast<double>(a) * static_cast<double>(b);
  double remainder;
  const double sum = two_sum(product, c, &remainder);
  return zero_sum<kRound>(round_sum<kRound>(sum, remainder), product, c);
}

}  // namespace ptxemu
