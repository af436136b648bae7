// Scores of f32 inputs, summed with compensation.
//
// A plain float sum of 128 products is off by several roundings of the whole, and where few keys
// dominate a row that is more than the f32 contract allows. Here four products at a time are
// summed plainly, those sums are added up, and each four products start from what the addition
// before them has rounded away: about 3 times less error, for three additions every four products.
#pragma once

#include <cstdint>

#include "cpu/isa/micro_kernel.h"

namespace fa4::internal {
namespace {

constexpr int kChainTerms = 4;

// Read once, into a register: the compiler would load the same numbers again for each instruction
// that takes them, and a tile of so few rows waits for loads as it is.
template <class Path>
typename Path::F load_once(const void* p) {
  return *static_cast<const volatile typename Path::Unaligned*>(p);
}

// Path: besides what multiply_panels wants Unaligned (an F at any address), kScorePart, how many
// rows go on together, and kTotalsInRegisters; else totals are in c. One part's products fill the
// time in which another part's additions wait for each other.
template <class Path, int kRows, int kPart>
bool multiply_rows_compensated(const uint32_t* a, int64_t a_stride, const uint32_t* b,
                               int64_t panel_stride, int units, float* c, int64_t c_stride) {
  using F = typename Path::F;
  constexpr int kPanels = Path::kPanels;
  constexpr bool kInRegisters = Path::kTotalsInRegisters;
  const auto at = [&](int i, int j) { return c + i * c_stride + j * Path::kLanes; };
  F sums[kRows][kPanels], totals[kRows][kPanels];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) {
      sums[i][j] = totals[i][j] = Path::zero();
      if (!kInRegisters) Path::store(at(i, j), Path::zero());
    }
  }
  for (int u = 0; u < units; u += kChainTerms) {  // head_dim is a multiple of 8
#pragma GCC unroll 8
    for (int first = 0; first < kRows; first += kPart) {
#pragma GCC unroll 4
      for (int t = 0; t < kChainTerms; ++t) {
        F right[kPanels];
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) {
          right[j] = load_once<Path>(b + j * panel_stride + int64_t{u + t} * Path::kLanes);
        }
#pragma GCC unroll 8
        for (int i = first; i < first + kPart; ++i) {
          const F left = Path::broadcast_unit(a + i * a_stride + u + t);
#pragma GCC unroll 4
          for (int j = 0; j < kPanels; ++j) {
            sums[i][j] = Path::multiply_add(sums[i][j], left, right[j]);
          }
          if (t < kChainTerms - 1) continue;
#pragma GCC unroll 4
          for (int j = 0; j < kPanels; ++j) {
            const F before = kInRegisters ? totals[i][j] : load_once<Path>(at(i, j));
            const F total = Path::add(before, sums[i][j]);
            sums[i][j] = Path::sub(sums[i][j], Path::sub(total, before));
            totals[i][j] = total;
            if (!kInRegisters) Path::store(at(i, j), total);
          }
        }
      }
    }
  }
  bool has_nan = false;
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) {
      if (kInRegisters) Path::store(at(i, j), totals[i][j]);
      has_nan |= Path::any_nan(kInRegisters ? totals[i][j] : Path::load(at(i, j)));
    }
  }
  return has_nan;
}

// What an infinite sum rounds away is NaN: such scores, and they alone, are summed plainly.
template <class Path>
void replace_nan_scores(const uint32_t* a, const uint32_t* b, int64_t panel_stride, int units,
                        int rows, float* c, int64_t c_stride) {
  constexpr int kColumns = Path::kPanels * Path::kLanes;
  float plain[Path::kScoreRows * kColumns];
  MicroKernels<Path, false>::of(rows, Path::kPanels)(a, units, b, panel_stride, 0, units, plain,
                                                     kColumns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      float& score = c[i * c_stride + j];
      if (score != score) score = plain[i * kColumns + j];
    }
  }
}

// `rows` rows times kPanels panels, Path::kScoreRows at a time.
template <class Path>
void multiply_compensated(const uint32_t* q, const uint32_t* k, int64_t panel_stride, int units,
                          int rows, float* s, int64_t s_stride) {
  constexpr int kMost = Path::kScoreRows;
  for (int r = 0, count; r < rows; r += count) {
    count = rows - r < kMost ? 1 : kMost;
    const uint32_t* a = q + int64_t{r} * units;
    float* c = s + r * s_stride;
    const auto multiply = count == kMost ? multiply_rows_compensated<Path, kMost, Path::kScorePart>
                                         : multiply_rows_compensated<Path, 1, 1>;
    if (multiply(a, units, k, panel_stride, units, c, s_stride)) {
      replace_nan_scores<Path>(a, k, panel_stride, units, count, c, s_stride);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
