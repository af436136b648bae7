// 2^x of a pair of scores: by the special function unit, or by a polynomial on the FMA pipe, which
// takes a share of the columns because on Blackwell exponentials take as long as the products.
#pragma once

#include "kernels/ptx/math.cuh"
#include "kernels/ptx/packed.cuh"
#include "kernels/softmax/exp2_math.h"

namespace fa4 {

// Adding it makes the integer part the low bits of a float.
inline constexpr float kRoundToInteger = 12582912.0f;  // 2^23 + 2^22

// x = score scale + offset.
struct Exp2Line {
  float scale;
  float offset;
  float clamped_scale;  // of the polynomial's y = (x + 127) / 256
  float clamped_offset;

  __device__ void set(float new_scale, float new_offset) {
    scale = new_scale;
    offset = new_offset;
    clamped_scale = new_scale / 256;
    clamped_offset = fmaf(new_offset, 1.0f / 256, -kExp2Lowest / 256);
  }
};

// (s0, s1) become 2^x, by the special function unit.
__device__ inline void exp2_unit(float& s0, float& s1, const Exp2Line& line) {
  ptx::fma_rn_ftz(s0, s1, ptx::pack_float2(line.scale), ptx::pack_float2(line.offset));
  s0 = ptx::ex2_approx_ftz(s0);
  s1 = ptx::ex2_approx_ftz(s1);
}

// The same on the FMA pipe: 2^x = 2^n (1 + c1 f + ...), n = floor(x) (Cody and Waite; the
// coefficients: exp2_math.h). What computes y = (x + 127) / 256 saturates it, so that scores from
// 2^-127 down become 0. NaN becomes 0 too: the columns next to it must carry it.
template <int kDegree>
__device__ inline void exp2_polynomial(float& s0, float& s1, const Exp2Line& line) {
  constexpr float kInteger = kRoundToInteger + kExp2Lowest;
  const auto [integer, f] =
      ptx::split_saturated(s0, s1, line.clamped_scale, line.clamped_offset,
                           ptx::both_halves(256.0f), ptx::both_halves(kInteger));
  ptx::Float2 p = ptx::both_halves(kExp2FloorCoefficient<kDegree, kDegree>);
  if constexpr (kDegree >= 5) {
    p = ptx::fma_rn_ftz(p, f, ptx::both_halves(kExp2FloorCoefficient<kDegree, 4>));
  }
  if constexpr (kDegree >= 4) {
    p = ptx::fma_rn_ftz(p, f, ptx::both_halves(kExp2FloorCoefficient<kDegree, 3>));
  }
  if constexpr (kDegree >= 3) {
    p = ptx::fma_rn_ftz(p, f, ptx::both_halves(kExp2FloorCoefficient<kDegree, 2>));
  }
  p = ptx::fma_rn_ftz(p, f, ptx::both_halves(kExp2FloorCoefficient<kDegree, 1>));
  p = ptx::fma_rn_ftz(p, f, ptx::both_halves(1.0f));
  ptx::add_to_exponents(p, integer, &s0, &s1);
}

}  // namespace fa4
