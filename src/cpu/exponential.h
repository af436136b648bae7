// The polynomial exponential of every CPU path, in scalar form, and which degree a dtype uses.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {

// The degree per dtype: its error stays well below one rounding of the dtype (docs/cpu.md).
constexpr int exp2_degree(DType dtype) {
  return dtype == DType::kBF16 ? kBf16Exp2Degree : dtype == DType::kF16 ? 4 : 6;
}

// How far a row's maximum may rise before its sums are rescaled, in powers of two. f32 rescales at
// once: the largest weights then have arguments near 0, where a float's absolute error is least.
constexpr float rescale_threshold(DType dtype) {
  return dtype == DType::kF32 ? 0.0f : kRescaleThreshold;
}

// 2^x for x <= 127; 0 below 2^-126.5; NaN stays NaN.
float exp2_polynomial(int degree, float x);

inline float exp2_of(DType dtype, float x) { return exp2_polynomial(exp2_degree(dtype), x); }

// Largest relative error of exp2_of: the epsilon of the lse's bound.
double exp2_max_relative_error(DType dtype);

}  // namespace fa4::internal
