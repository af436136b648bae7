// Scores of f32 inputs, summed with compensation.
//
// A plain float sum of 128 products is off by several roundings of the whole, and where few keys
// dominate a row that is more than the f32 contract allows. Here four products at a time are
// summed plainly, and those sums with Kahan's correction: about 3 times less error for twice the
// operations in Q K^T.
#pragma once

#include <cstdint>

#include "cpu/isa/micro_kernel.h"

namespace fa4::internal {
namespace {

constexpr int kPlainTerms = 4;

template <class Path, int kRows>
bool multiply_rows_compensated(const uint32_t* a, int64_t a_stride, const uint32_t* b,
                               int64_t panel_stride, int units, float* c, int64_t c_stride) {
  using F = typename Path::F;
  constexpr int kPanels = Path::kPanels;
  F totals[kRows][kPanels], lost[kRows][kPanels];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) totals[i][j] = lost[i][j] = Path::zero();
  }
  for (int u = 0; u < units; u += kPlainTerms) {  // head_dim is a multiple of 8
    F sums[kRows][kPanels];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kPanels; ++j) sums[i][j] = Path::zero();
    }
#pragma GCC unroll 8
    for (int t = 0; t < kPlainTerms; ++t) {
      F right[kPanels];
#pragma GCC unroll 4
      for (int j = 0; j < kPanels; ++j) {
        right[j] = Path::load_units(b + j * panel_stride + int64_t{u + t} * Path::kLanes);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const F left = Path::broadcast_unit(a + i * a_stride + u + t);
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) {
          sums[i][j] = Path::multiply_add(sums[i][j], left, right[j]);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kPanels; ++j) {
        const F term = Path::sub(sums[i][j], lost[i][j]);
        const F total = Path::add(totals[i][j], term);
        lost[i][j] = Path::sub(Path::sub(total, totals[i][j]), term);
        totals[i][j] = total;
      }
    }
  }
  bool has_nan = false;
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) {
      has_nan |= Path::any_nan(totals[i][j]);
      Path::store(c + i * c_stride + j * Path::kLanes, totals[i][j]);
    }
  }
  return has_nan;
}

// The correction of an infinite sum is NaN: such scores, and they alone, are summed plainly.
template <class Path>
void replace_nan_scores(const uint32_t* a, const uint32_t* b, int64_t panel_stride, int units,
                        int rows, float* c, int64_t c_stride) {
  constexpr int kColumns = Path::kPanels * Path::kLanes;
  float plain[2 * kColumns];
  MicroKernels<Path, false>::of(rows, Path::kPanels)(a, units, b, panel_stride, 0, units, plain,
                                                     kColumns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      float& score = c[i * c_stride + j];
      if (score != score) score = plain[i * kColumns + j];
    }
  }
}

// `rows` rows times kPanels panels.
template <class Path>
void multiply_compensated(const uint32_t* q, const uint32_t* k, int64_t panel_stride, int units,
                          int rows, float* s, int64_t s_stride) {
  for (int r = 0; r < rows; r += 2) {
    const int count = rows - r < 2 ? 1 : 2;
    const uint32_t* a = q + int64_t{r} * units;
    float* c = s + r * s_stride;
    const auto multiply =
        count == 2 ? multiply_rows_compensated<Path, 2> : multiply_rows_compensated<Path, 1>;
    if (multiply(a, units, k, panel_stride, units, c, s_stride)) {
      replace_nan_scores<Path>(a, k, panel_stride, units, count, c, s_stride);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
