// The instruction descriptor of tcgen05.mma: types and shape.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/integers.h"

namespace fa4 {

// D (m x n, f32) from A (m x 16) and B (16 x n) of 16 bits ("Instruction descriptor", PTX ISA
// 9.7.16.4.2, .kind::f16). An operand's contracted dimension runs over rows when it is `mn_major`.
constexpr uint32_t umma_instruction(Element element, int m, int n, bool b_mn_major,
                                    bool a_mn_major = false) {
  // Lowest bits of the fields.
  constexpr int kTypeOfD = 4, kTypeOfA = 7, kTypeOfB = 10, kTransposeA = 15, kTransposeB = 16,
                kEighthOfN = 17, kSixteenthOfM = 24;
  constexpr uint32_t kF16 = 0, kBF16 = 1;  // of A and B
  constexpr uint32_t kF32 = 1;             // of D
  const uint32_t type = element == Element::kBF16 ? kBF16 : kF16;
  return kF32 << kTypeOfD | type << kTypeOfA | type << kTypeOfB |
         static_cast<uint32_t>(a_mn_major) << kTransposeA |
         static_cast<uint32_t>(b_mn_major) << kTransposeB |
         static_cast<uint32_t>(n >> 3) << kEighthOfN |
         static_cast<uint32_t>(m >> 4) << kSixteenthOfM;
}

}  // namespace fa4
