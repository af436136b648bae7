// A quotient that is rounded once more. Host and device.
#pragma once

#include "kernels/base/integers.h"

#ifndef __CUDACC_RTC__
#include <cmath>
#endif

namespace fa4 {

// x / y to 24 bits, so that rounding it to fewer gives what the quotient itself would: where 24
// bits do not hold it, the one of the two neighbours whose last bit is set. The nearest one may lie
// in the middle of two shorter numbers where the quotient does not. (Rounding to odd; S. Boldo,
// G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
// odd", IEEE Transactions on Computers 57, 2008.)
inline float odd_quotient(float x, float y) {
  const float nearest = x / y;
  const float left = fmaf(-nearest, y, x);  // exact
  const auto bits = __builtin_bit_cast(uint32_t, nearest);
  const bool is_between = left < 0 || left > 0;  // not of what is infinite or NaN
  if (!is_between || bits % 2 != 0 || nearest == 0) return nearest;
  const bool is_larger = ((left > 0) == (y > 0)) == (nearest > 0);  // in magnitude
  return __builtin_bit_cast(float, is_larger ? bits + 1 : bits - 1);
}

}  // namespace fa4
