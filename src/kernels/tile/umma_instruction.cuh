// The instruction descriptor of tcgen05.mma: types and shape.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/integers.h"

namespace fa4 {

// D (m x n, f32) from A (m x 16) and B (16 x n) of 16 bits (PTX ISA, "Instruction descriptor",
// .kind::f16). An operand's contracted dimension runs over rows when it is `mn_major`.
constexpr uint32_t umma_instruction(Element element, int m, int n, bool b_mn_major,
                                    bool a_mn_major = false) {
  const uint32_t type = element == Element::kBF16 ? 1 : 0;
  constexpr uint32_t kF32 = 1;
  return kF32 << 4 | type << 7 | type << 10 | static_cast<uint32_t>(a_mn_major) << 15 |
         static_cast<uint32_t>(b_mn_major) << 16 | static_cast<uint32_t>(n >> 3) << 17 |
         static_cast<uint32_t>(m >> 4) << 24;
}

}  // namespace fa4
