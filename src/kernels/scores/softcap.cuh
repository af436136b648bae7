// Scores that are not q k times a positive scale: capped, softcap * tanh(score / softcap), or
// negated, where the scale is negative.
#pragma once

#include "kernels/base/cap_params.h"
#include "kernels/base/log2.h"
#include "kernels/ptx/math.cuh"

namespace fa4 {

// tanh to about 4e-7 of its value. (tanh.approx is right to 5e-4 only: 30 of it moved lse
// by 1.5e-4, ten times what docs/api.md allows.)
__device__ inline float accurate_tanh(float x) {
  const float far =
      fmaf(-2.0f, ptx::rcp_approx_ftz(ptx::ex2_approx_ftz(x * (2 * kLog2E)) + 1.0f), 1.0f);
  // Near 0 that difference cancels; the Taylor series to x^7 is off by 62/2835 x^9.
  const float x2 = x * x;
  const float series = fmaf(x2, fmaf(x2, -17.0f / 315, 2.0f / 15), -1.0f / 3);
  const float near = fmaf(x * x2, series, x);
  return fabsf(x) < 0.25f ? near : far;
}

// Caps a score `s` within the limit of `to` by a polynomial, without an exponential; `s2` is its
// square.
__device__ inline float near_cap(float s, float s2, const NearCap& to) {
  return s * fmaf(s2, fmaf(s2, fmaf(s2, to.c7, to.c5), to.c3), to.c1);
}

// What the forward's softmax takes are powers of two: softcap log2(e) tanh(score / softcap). The
// exponential units are what kernels with softcap wait for, so that there are three ways to it.

// 1. Scores that are small beside softcap, of all of a warp: near_cap(). Which scores count is for
// the caller to say, who looks at none that another sequence, or whatever lies behind this one, may
// have a part in: no bit of a result is to depend on those.
template <int kScores>
__device__ inline float largest_of_row(const float (&s)[kScores], int r) {  // of a fragment's two
  float largest[2] = {fabsf(s[2 * r]), fabsf(s[2 * r + 1])};
#pragma unroll
  for (int i = 2 * r + 4; i < kScores; i += 4) {
    largest[0] = ptx::max_nan(largest[0], fabsf(s[i]));
    largest[1] = ptx::max_nan(largest[1], fabsf(s[i + 1]));
  }
  return ptx::max_nan(largest[0], largest[1]);
}
template <int kScores>
__device__ inline float largest_of(const float (&s)[kScores]) {
  return ptx::max_nan(largest_of_row(s, 0), largest_of_row(s, 1));
}

// 2. Of others that their row sees, (1 - e) / (1 + e), where e = exp(-2 |x|): right to 1.2e-7 of
// softcap and 4e-7 of the value. Two scores of a row share a reciprocal; so one that is NaN makes
// another one NaN.
template <int kScores>
__device__ inline void cap_in_pairs(float (&s)[kScores], const CapParams& cap) {
  const float factor = -2 * kLog2E * cap.scale_over_softcap;
#pragma unroll
  for (int i = 0; i < kScores; i += 2) {
    float& x = s[i];
    float& y = s[i + 1];
    const float of_x = ptx::ex2_approx_ftz(fabsf(x) * factor);
    const float of_y = ptx::ex2_approx_ftz(fabsf(y) * factor);
    const float below_x = 1.0f + of_x, below_y = 1.0f + of_y;
    const float both = ptx::rcp_approx_ftz(below_x * below_y) * cap.softcap_log2;
    x = copysignf((1.0f - of_x) * below_y * both, x);
    y = copysignf((1.0f - of_y) * below_x * both, y);
  }
}

// 3. Any scores: accurate_tanh(). `are_seen`: their row sees all of the scores.
template <int kScores>
__device__ inline void cap_scores(float (&s)[kScores], const CapParams& cap, bool are_near,
                                  bool are_seen) {
  // Up to here pairs are off by at most 8e-6 of the 1e-5 that lse may be.
  constexpr float kLargestInPairs = 64 * kLog2E;
  if (cap.negates) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = -s[i];
  }
  if (cap.softcap_log2 == 0.0f) return;
  if (are_near) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = near_cap(s[i], s[i] * s[i], cap.near);
  } else if (are_seen & (cap.softcap_log2 <= kLargestInPairs)) {
    cap_in_pairs(s, cap);
  } else {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      s[i] = cap.softcap_log2 * accurate_tanh(s[i] * cap.scale_over_softcap);
    }
  }
}

// The scores become tanh, in units of softcap, as the backward takes them. All lanes of a warp call
// it. A chunk whose scores are all near 0 takes the polynomial alone. (One branch for all scores
// would have more of them under way than there are registers.) `near` says whether all chunks so
// far were near; after one that was not, none looks. The squares that the polynomial takes are
// compared as integers, three at a time, with to.limit, which is the limit of squares.
template <int kScores>
__device__ inline void tanh_scores(float (&s)[kScores], float scale_over_softcap, const NearCap& to,
                                   bool& near) {
  constexpr int kChunk = kScores % 16 == 0 ? 16 : 8;
  static_assert(kScores % kChunk == 0);
#pragma unroll
  for (int first = 0; first < kScores; first += kChunk) {
    float s2[kChunk];
    int largest = 0;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) s2[i] = s[first + i] * s[first + i];
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
      largest = max(largest, max(__float_as_int(s2[i]), __float_as_int(s2[i + 1])));
    }
    near = near && __all_sync(0xffffffffu, largest <= __float_as_int(to.limit));
    if (near) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) s[first + i] = near_cap(s[first + i], s2[i], to);
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        s[first + i] = accurate_tanh(s[first + i] * scale_over_softcap);
      }
    }
  }
}

}  // namespace fa4
