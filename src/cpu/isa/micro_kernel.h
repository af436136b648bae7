// The register-blocked product of all paths but AMX: kRows rows of A times kPanels panels of B.
//
// A unit is 32 bits: one float, or two bf16 that one instruction multiplies and adds. A's units are
// broadcast, B's lie side by side in a panel of kLanes, the sums stay in registers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fa4::internal {
namespace {

// How A's units lie: row after row, or unit after unit, the rows side by side.
enum class UnitsOfA { kInRows, kInColumns };

// Path: F, kLanes, kPanels (B vectors at once), zero, load, store, add, broadcast_unit, load_units,
// multiply_add. `a_stride`: between rows, or between units.
template <class Path, int kRows, int kPanels, bool kAccumulate, UnitsOfA kUnits>
void multiply_panels(const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t panel_stride,
                     int first_unit, int end_unit, float* c, int64_t c_stride) {
  using F = typename Path::F;
  F sums[kRows][kPanels];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) sums[i][j] = Path::zero();
  }
  for (int u = first_unit; u < end_unit; ++u) {
    F right[kPanels];
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) {
      right[j] = Path::load_units(b + j * panel_stride + static_cast<int64_t>(u) * Path::kLanes);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const F left = Path::broadcast_unit(kUnits == UnitsOfA::kInRows ? a + i * a_stride + u
                                                                      : a + u * a_stride + i);
#pragma GCC unroll 4
      for (int j = 0; j < kPanels; ++j) {
        sums[i][j] = Path::multiply_add(sums[i][j], left, right[j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) {
      float* at = c + i * c_stride + j * Path::kLanes;
      // A block's product is summed by itself first: shorter chains, less rounding.
      Path::store(at, kAccumulate ? Path::add(Path::load(at), sums[i][j]) : sums[i][j]);
    }
  }
}

using MultiplyPanels = void (*)(const uint32_t*, int64_t, const uint32_t*, int64_t, int, int,
                                float*, int64_t);

// One function for every number of rows and panels.
template <class Path, bool kAccumulate, UnitsOfA kUnits = UnitsOfA::kInRows>
struct MicroKernels {
  static constexpr int kRows = 6;
  static constexpr int kPanels = Path::kPanels;

  template <int kPanelCount>
  static MultiplyPanels of_rows(int rows) {
    switch (rows) {
      case 1: return multiply_panels<Path, 1, kPanelCount, kAccumulate, kUnits>;
      case 2: return multiply_panels<Path, 2, kPanelCount, kAccumulate, kUnits>;
      case 3: return multiply_panels<Path, 3, kPanelCount, kAccumulate, kUnits>;
      case 4: return multiply_panels<Path, 4, kPanelCount, kAccumulate, kUnits>;
      case 5: return multiply_panels<Path, 5, kPanelCount, kAccumulate, kUnits>;
      default: return multiply_panels<Path, 6, kPanelCount, kAccumulate, kUnits>;
    }
  }

  static MultiplyPanels of(int rows, int panels) {
    if constexpr (kPanels >= 4) {
      if (panels == 4) return of_rows<4>(rows);
      if (panels == 3) return of_rows<3>(rows);
    }
    return panels == 2 ? of_rows<2>(rows) : of_rows<1>(rows);
  }
};

}  // namespace
}  // namespace fa4::internal
