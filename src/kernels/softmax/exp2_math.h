// The exponential of the online softmax: polynomials for 2^f, and when a row's maximum moves.
// Shared by host and device.
//
// 2^x = 2^n * 2^f with n = round(x), f = x - n in [-1/2, 1/2] (Cody and Waite). The coefficients
// minimise the largest relative error of p(f) = c0 + c1 f + ... on that interval (Remez exchange,
// double precision, then rounded to float); c0 is free, so 2^0 is off by at most that error, which
// cancels in the normalised result.
#pragma once

#include "kernels/base/log2.h"

namespace fa4 {

template <int kDegree, int kPower>
inline constexpr float kExp2Coefficient = 0.0f;

template <>
inline constexpr float kExp2Coefficient<3, 0> = 0.99992807354f;
template <>
inline constexpr float kExp2Coefficient<3, 1> = 0.69326098546f;
template <>
inline constexpr float kExp2Coefficient<3, 2> = 0.24261112219f;
template <>
inline constexpr float kExp2Coefficient<3, 3> = 0.055171669058f;

template <>
inline constexpr float kExp2Coefficient<4, 0> = 0.99999926145f;
template <>
inline constexpr float kExp2Coefficient<4, 1> = 0.69312181474f;
template <>
inline constexpr float kExp2Coefficient<4, 2> = 0.24024744828f;
template <>
inline constexpr float kExp2Coefficient<4, 3> = 0.055917860319f;
template <>
inline constexpr float kExp2Coefficient<4, 4> = 0.0095701019112f;

template <>
inline constexpr float kExp2Coefficient<5, 0> = 1.0000000717f;
template <>
inline constexpr float kExp2Coefficient<5, 1> = 0.69314696706f;
template <>
inline constexpr float kExp2Coefficient<5, 2> = 0.24022119724f;
template <>
inline constexpr float kExp2Coefficient<5, 3> = 0.055507132735f;
template <>
inline constexpr float kExp2Coefficient<5, 4> = 0.0096755413345f;
template <>
inline constexpr float kExp2Coefficient<5, 5> = 0.0013276471993f;

template <>
inline constexpr float kExp2Coefficient<6, 0> = 1.0000000006f;
template <>
inline constexpr float kExp2Coefficient<6, 1> = 0.69314720574f;
template <>
inline constexpr float kExp2Coefficient<6, 2> = 0.24022646891f;
template <>
inline constexpr float kExp2Coefficient<6, 3> = 0.05550328777f;
template <>
inline constexpr float kExp2Coefficient<6, 4> = 0.0096184889571f;
template <>
inline constexpr float kExp2Coefficient<6, 5> = 0.0013399931219f;
template <>
inline constexpr float kExp2Coefficient<6, 6> = 0.00015345812006f;

// Largest relative error of the polynomial evaluated in float, measured against 2^x in double over
// every float f of the interval's grid (a test repeats the measurement).
template <int kDegree>
inline constexpr float kExp2MaxRelativeError = 0.0f;
template <>
inline constexpr float kExp2MaxRelativeError<3> = 7.5e-5f;
template <>
inline constexpr float kExp2MaxRelativeError<4> = 2.75e-6f;
template <>
inline constexpr float kExp2MaxRelativeError<5> = 2.4e-7f;
template <>
inline constexpr float kExp2MaxRelativeError<6> = 1.5e-7f;

// The same for n = floor(x), f in [0, 1), with c0 = 1: 2^n is exact, so that a score clamped to
// 2^-127 becomes 0 when n is added to the exponent (softmax/exp2.cuh).
template <int kDegree, int kPower>
inline constexpr float kExp2FloorCoefficient = 0.0f;

template <>
inline constexpr float kExp2FloorCoefficient<2, 1> = 0.66596096754f;
template <>
inline constexpr float kExp2FloorCoefficient<2, 2> = 0.32993239164f;

template <>
inline constexpr float kExp2FloorCoefficient<3, 1> = 0.69511675835f;
template <>
inline constexpr float kExp2FloorCoefficient<3, 2> = 0.22764499485f;
template <>
inline constexpr float kExp2FloorCoefficient<3, 3> = 0.077067039907f;

template <>
inline constexpr float kExp2FloorCoefficient<4, 1> = 0.69304484129f;
template <>
inline constexpr float kExp2FloorCoefficient<4, 2> = 0.2412801981f;
template <>
inline constexpr float kExp2FloorCoefficient<4, 3> = 0.052242472768f;
template <>
inline constexpr float kExp2FloorCoefficient<4, 4> = 0.013426683843f;

template <>
inline constexpr float kExp2FloorCoefficient<5, 1> = 0.69315129519f;
template <>
inline constexpr float kExp2FloorCoefficient<5, 2> = 0.24016444385f;
template <>
inline constexpr float kExp2FloorCoefficient<5, 3> = 0.055799912661f;
template <>
inline constexpr float kExp2FloorCoefficient<5, 4> = 0.0090170307085f;
template <>
inline constexpr float kExp2FloorCoefficient<5, 5> = 0.0018671300495f;

template <int kDegree>
inline constexpr float kExp2FloorMaxRelativeError = 0.0f;
template <>
inline constexpr float kExp2FloorMaxRelativeError<2> = 2.1e-3f;
template <>
inline constexpr float kExp2FloorMaxRelativeError<3> = 8.6e-5f;
template <>
inline constexpr float kExp2FloorMaxRelativeError<4> = 3.0e-6f;
template <>
inline constexpr float kExp2FloorMaxRelativeError<5> = 1.6e-7f;

// The degree that is enough for results in bf16.
inline constexpr int kBf16Exp2Degree = 3;

// A row keeps its stale maximum while the new one is at most this much above it, in powers of two:
// probabilities then reach 2^8, which floats hold without loss, and most blocks rescale nothing.
inline constexpr float kRescaleThreshold = 8.0f;

// A row is NaN, in out and lse, when its largest score, scaled and times log2(e), is not below this
// in magnitude: floats are then so far apart that the maximum's own rounding decides what its
// probability is, and a row with the largest of all scores could end as one that saw nothing. Below
// it sums of a maximum and the polynomial's offset are exact. All devices share the limit.
inline constexpr float kScoreLimitLog2 = 0x1p23f;

// A row whose maximum is below the limit on the negative side (-inf: all its scores are) is exact
// beside a sink that is not as low: its keys count for nothing.
constexpr bool is_nothing_beside(float max_log2, float sink) {
  return max_log2 <= -kScoreLimitLog2 && sink > -kScoreLimitLog2 / 4;
}

// The least maximum that probabilities are relative to: a row with only -inf so far, or with
// nothing but scores beyond the limit, has probabilities of 0 instead of inf - inf. It lies beyond
// the limit, so that a row whose maximum it is stays one.
inline constexpr float kLowestMaxLog2 = -2 * kScoreLimitLog2;

// Scores below 2^-127 of the (stale) maximum count as zero.
inline constexpr float kExp2Lowest = -127.0f;

}  // namespace fa4
