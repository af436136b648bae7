// What differs between two compiled variants of the backward's first and last kernel. Shared by
// host and device.
#pragma once

#include "kernels/base/element.h"

namespace fa4 {

// Query rows of a block: those of one step of the main kernel.
inline constexpr int kQueryRows = 64;

inline constexpr int kPreprocessThreads = 256;
inline constexpr int kPostprocessThreads = 128;

struct BwdRowTraits {
  Element element = Element::kBF16;

  constexpr bool operator==(const BwdRowTraits&) const = default;
};

}  // namespace fa4
