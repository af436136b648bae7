// The special function unit as an interpolator: 2^x, 1/x, 1/sqrt(x), sqrt(x), log2(x), sin and tanh
// from tables of quadratics in fixed point. An argument is a segment (its upper bits) and an offset
// x within it; the value is C0 + C1 x + C2 x^2, where the squarer leaves out its lower columns.
//
// Every coefficient was solved for from results captured on an H200 (driver 580, 2026-11-21): in
// each segment one triple alone gives all captured bits (tools/fit_approx.py). The form is the one
// published by Oberman and Siu, "A High-Performance Area-Efficient Multifunction Interpolator",
// ARITH 2005.
#pragma once

#include <cstdint>

#include "emulator/isa/lanes.h"

namespace ptxemu {

struct InterpolatorRow {
  uint32_t c0;
  int32_t c1, c2;
};

// Of each function: its rows; the bits of an offset less the 8 that the squarer takes whole
// (kLow); where C0 stands and what is added to it for rounding. The value has kFraction
// fractional bits.
struct Ex2Table {  // 2^f, f in [0, 1)
  static constexpr int kLow = 9, kShift = 13, kBias = 6114, kFraction = 38;
  static const InterpolatorRow kRows[64];
};
struct RcpTable {  // 1 / m, m in [1, 2)
  static constexpr int kLow = 8, kShift = 13, kBias = 2023, kFraction = 39;
  static const InterpolatorRow kRows[128];
};
struct RsqrtTable {  // 1 / sqrt(m), m in [1, 2), then [2, 4)
  static constexpr int kLow = 9, kShift = 14, kBias = 16383, kFraction = 40;
  static const InterpolatorRow kRows[128];
};
struct SqrtTable {  // sqrt(m), m in [1, 2), then [2, 4)
  static constexpr int kLow = 9, kShift = 15, kBias = 32767, kFraction = 40;
  static const InterpolatorRow kRows[128];
};
struct Lg2Table {  // log2(m), m in [1, 2)
  static constexpr int kLow = 9, kShift = 12, kBias = 837, kFraction = 38;
  static const InterpolatorRow kRows[64];
};
struct SinTable {  // sin(f pi / 2), f in [0, 1)
  static constexpr int kLow = 9, kShift = 13, kBias = 0, kFraction = 38;
  static const InterpolatorRow kRows[64];
};
struct TanhTable {  // tanh(x): 1, 1, 1, 2, 2, 4, 4, 4, 8, 16 and 8 segments of the octaves from
                    // 2^-8
  static constexpr int kLow = 9, kShift = 15, kBias = 0, kFraction = 39;
  static const InterpolatorRow kRows[51];
};

// The square of an offset of kLow + 8 bits, over 2^(2 kLow + 1): without the columns below that,
// whose partial products are left out, not summed and truncated.
template <int kLow>
PTXEMU_INLINE uint32_t truncated_square(uint32_t x) {
  const uint32_t high = x >> kLow, low = x & ((1u << kLow) - 1);
  uint32_t sum = (high * high - (high & 1)) >> 1;
  for (int i = 1; i < 8; ++i) sum += low >> (kLow - i) & (0u - (high >> i & 1));
  return sum;
}

template <class Table>
PTXEMU_INLINE int64_t interpolate(uint32_t argument) {
  constexpr int kOffsetBits = Table::kLow + 8;
  const InterpolatorRow& row = Table::kRows[argument >> kOffsetBits];
  const uint32_t x = argument & ((1u << kOffsetBits) - 1);
  const auto square = static_cast<int32_t>(truncated_square<Table::kLow>(x));
  const int64_t c0 = static_cast<int64_t>(uint64_t{row.c0} << Table::kShift) + Table::kBias;
  return c0 + int64_t{row.c1} * static_cast<int32_t>(x) + int64_t{row.c2} * square;
}

// interpolate<Ex2Table>() in units of 2^-23, in 32-bit arithmetic: its sums above 2^13 and below.
PTXEMU_INLINE uint32_t interpolate_ex2(uint32_t fraction) {
  const InterpolatorRow& row = Ex2Table::kRows[fraction >> 17];
  const uint32_t x = fraction & 0x1ffff;
  const auto c1 = static_cast<uint32_t>(row.c1), c2 = static_cast<uint32_t>(row.c2);
  const uint32_t product = c1 * (x >> 1);
  const uint32_t below = ((product & 0xfff) << 1) + c1 * (x & 1) +
                         c2 * truncated_square<Ex2Table::kLow>(x) + Ex2Table::kBias;
  return (row.c0 + (product >> 12) + (below >> 13)) >> 2;
}

}  // namespace ptxemu
