// Products of f32 inputs in double precision, which leave a float and what that lacks.
//
// The gradient of a score is a probability times a small difference of two larger numbers, and the
// probability itself is the exponential of a difference. Float sums lose what is left of them, and
// compensated ones still round within each few terms; here nothing but the last step rounds.
#pragma once

#include <cstdint>

namespace fa4::internal {
namespace {

// Path: Doubles, vectors of kLanes / 2, with zero, load, set1, fma and store_split(float*, float*,
// F), which writes kLanes / 2 floats each; kDoubleRows and kDoublePanels.
// A: kRows rows of doubles. B: a panel of kLanes columns as two vectors, unit after unit.
template <class Path, int kRows, int kPanels>
void multiply_doubles(const double* a, int64_t a_stride, const double* b, int64_t panel_stride,
                      int units, float* high, float* low, int64_t stride) {
  using Doubles = typename Path::Doubles;
  using D = typename Doubles::F;
  constexpr int kVectors = 2 * kPanels, kHalf = Path::kLanes / 2;
  D sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sums[i][j] = Doubles::zero();
  }
  for (int u = 0; u < units; ++u) {
    D right[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      right[j] =
          Doubles::load(b + j / 2 * panel_stride + int64_t{u} * Path::kLanes + j % 2 * kHalf);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const D left = Doubles::set1(a[i * a_stride + u]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        sums[i][j] = Doubles::fma(left, right[j], sums[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      Doubles::store_split(high + i * stride + j * kHalf, low + i * stride + j * kHalf, sums[i][j]);
    }
  }
}

// `rows` rows times `panels` panels.
template <class Path>
void multiply_in_double(const double* a, int64_t a_stride, const double* b, int64_t panel_stride,
                        int units, int rows, int panels, float* high, float* low, int64_t stride) {
  constexpr int kMost = Path::kDoubleRows, kPanels = Path::kDoublePanels;
  for (int n = 0; n < panels; n += kPanels) {
    const double* right = b + n * panel_stride;
    const int column = n * Path::kLanes;
    int r = 0;
    for (; r + kMost <= rows; r += kMost) {
      multiply_doubles<Path, kMost, kPanels>(a + r * a_stride, a_stride, right, panel_stride, units,
                                             high + r * stride + column, low + r * stride + column,
                                             stride);
    }
    for (; r < rows; ++r) {
      multiply_doubles<Path, 1, kPanels>(a + r * a_stride, a_stride, right, panel_stride, units,
                                         high + r * stride + column, low + r * stride + column,
                                         stride);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
