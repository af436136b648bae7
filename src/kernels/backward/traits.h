// What differs between two compiled variants of the backward's first and last kernel. Shared by
// host and device.
#pragma once

#include "kernels/base/element.h"

namespace fa4 {

// Query rows of a block: those of one step of the main kernel.
inline constexpr int kQueryRows = 64;

inline constexpr int kPreprocessThreads = 256;
inline constexpr int kPostprocessThreads = 128;

// How the main kernel's sums of dq lie in a block of the workspace.
enum class DqLayout : int {
  kFragments,  // (columns / 8, 128, 4): wgmma's accumulators, a thread of a warpgroup each
  kRows,       // (columns / 4, kQueryRows, 4)
};

struct BwdRowTraits {
  Element element = Element::kBF16;
  DqLayout dq_layout = DqLayout::kFragments;

  constexpr bool operator==(const BwdRowTraits&) const = default;
};

}  // namespace fa4
