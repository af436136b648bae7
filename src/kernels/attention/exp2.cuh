// 2^x of a pair of scores: by the special function unit, or by a polynomial on the FMA pipe, which
// takes over a share of the columns because Blackwell's exponentials are as scarce as its products.
#pragma once

#include "kernels/attention/exp2_math.h"
#include "kernels/ptx/math.cuh"
#include "kernels/ptx/packed.cuh"

namespace fa4 {

// Adding it makes the integer part the low bits of a float; rounding down, so that f is in [0, 1).
inline constexpr float kRoundToInteger = 12582912.0f;  // 2^23 + 2^22

// 2^x = 2^n (1 + c1 f + ...), n = floor(x) (Cody and Waite; the coefficients: exp2_math.h). Scores
// from 2^-127 down become 0. NaN becomes 0 as well: the columns next to it must carry it.
template <int kDegree>
__device__ inline void exp2_polynomial(ptx::Float2 scaled, float* lower, float* upper) {
  float x0, x1;
  ptx::unpack_float2(scaled, &x0, &x1);
  const ptx::Float2 x = ptx::pack_float2(fmaxf(x0, kExp2Lowest), fmaxf(x1, kExp2Lowest));
  const ptx::Float2 integer = ptx::add_rm_ftz(x, ptx::pack_float2(kRoundToInteger));
  const ptx::Float2 n = ptx::add_rn_ftz(integer, ptx::pack_float2(-kRoundToInteger));
  const ptx::Float2 f = ptx::fma_rn_ftz(n, ptx::pack_float2(-1.0f), x);
  ptx::Float2 p = ptx::pack_float2(kExp2FloorCoefficient<kDegree, kDegree>);
  if constexpr (kDegree >= 5) {
    p = ptx::fma_rn_ftz(p, f, ptx::pack_float2(kExp2FloorCoefficient<kDegree, 4>));
  }
  if constexpr (kDegree >= 4) {
    p = ptx::fma_rn_ftz(p, f, ptx::pack_float2(kExp2FloorCoefficient<kDegree, 3>));
  }
  if constexpr (kDegree >= 3) {
    p = ptx::fma_rn_ftz(p, f, ptx::pack_float2(kExp2FloorCoefficient<kDegree, 2>));
  }
  p = ptx::fma_rn_ftz(p, f, ptx::pack_float2(kExp2FloorCoefficient<kDegree, 1>));
  p = ptx::fma_rn_ftz(p, f, ptx::pack_float2(1.0f));
  float p0, p1, i0, i1;
  ptx::unpack_float2(p, &p0, &p1);
  ptx::unpack_float2(integer, &i0, &i1);
  *lower = __int_as_float((__float_as_int(i0) << 23) + __float_as_int(p0));
  *upper = __int_as_float((__float_as_int(i1) << 23) + __float_as_int(p1));
}

// (s0, s1) become 2^(s scale + offset), by the polynomial or not.
template <bool kPolynomial, int kDegree>
__device__ inline void exp2_pair(float& s0, float& s1, ptx::Float2 scale, ptx::Float2 offset) {
  const ptx::Float2 x = ptx::fma_rn_ftz(ptx::pack_float2(s0, s1), scale, offset);
  if constexpr (kPolynomial) {
    exp2_polynomial<kDegree>(x, &s0, &s1);
  } else {
    ptx::unpack_float2(x, &s0, &s1);
    s0 = ptx::ex2_approx_ftz(s0);
    s1 = ptx::ex2_approx_ftz(s1);
  }
}

}  // namespace fa4
