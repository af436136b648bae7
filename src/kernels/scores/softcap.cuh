// Scores that are not q k times a positive scale: capped, softcap * tanh(score / softcap), or
// negated, where the scale is negative.
#pragma once

#include "kernels/ptx/math.cuh"

namespace fa4 {

// tanh to about 4e-7 of its value. (tanh.approx is right to 5e-4 only: 30 of it moved lse
// by 1.5e-4, ten times what docs/api.md allows.)
__device__ inline float accurate_tanh(float x) {
  constexpr float kTwoLog2E = 2.8853900817779268f;
  const float far =
      fmaf(-2.0f, ptx::rcp_approx_ftz(ptx::ex2_approx_ftz(x * kTwoLog2E) + 1.0f), 1.0f);
  // Near 0 that difference cancels; the Taylor series to x^7 is off by 62/2835 x^9.
  const float x2 = x * x;
  const float series = fmaf(x2, fmaf(x2, -17.0f / 315, 2.0f / 15), -1.0f / 3);
  const float near = fmaf(x * x2, series, x);
  return fabsf(x) < 0.25f ? near : far;
}

// The result is in units of softcap: the scale of the exponentials may hold the factor.
template <int kScores>
__device__ inline void tanh_scores(float (&s)[kScores], float scale_over_softcap) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) s[i] = accurate_tanh(s[i] * scale_over_softcap);
}

// As a kernel with softcap gives them to the softmax, in units of softcap.
template <int kScores>
__device__ inline void transform_scores(float (&s)[kScores], bool negates,
                                        float scale_over_softcap) {
  if (negates) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = -s[i];
  } else {
    tanh_scores(s, scale_over_softcap);
  }
}

}  // namespace fa4
