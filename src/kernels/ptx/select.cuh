// Replacing 32 floats by a mask of bits.
#pragma once

#include "kernels/base/integers.h"

namespace fa4::ptx {

// clang-format off
#define FA4_HIDE(i) "and.b32 t, %32, 1 << " #i ";\n\tsetp.eq.u32 p, t, 0;\n\tselp.f32 %" #i ", 0fFF800000, %" #i ", p;\n\t"
#define FA4_HIDE4(a, b, c, d) FA4_HIDE(a) FA4_HIDE(b) FA4_HIDE(c) FA4_HIDE(d)
#define FA4_F4(r, i) "+f"(r[i]), "+f"(r[i + 1]), "+f"(r[i + 2]), "+f"(r[i + 3])

// r[i] becomes -inf where bit i of `kept` is 0: and.b32, setp.eq.u32, selp.f32 for each, which
// ptxas makes R2P and FSEL of. One statement, since each costs the compiler.
// PTX ISA, "selp", sm_20
__device__ inline void hide_others(float (&r)[32], uint32_t kept) {
  asm("{\n\t"
      ".reg .pred p;\n\t"
      ".reg .b32 t;\n\t"
      FA4_HIDE4(0, 1, 2, 3) FA4_HIDE4(4, 5, 6, 7) FA4_HIDE4(8, 9, 10, 11) FA4_HIDE4(12, 13, 14, 15)
      FA4_HIDE4(16, 17, 18, 19) FA4_HIDE4(20, 21, 22, 23) FA4_HIDE4(24, 25, 26, 27) FA4_HIDE4(28, 29, 30, 31)
      "}"
      : FA4_F4(r, 0), FA4_F4(r, 4), FA4_F4(r, 8), FA4_F4(r, 12), FA4_F4(r, 16), FA4_F4(r, 20), FA4_F4(r, 24), FA4_F4(r, 28)
      : "r"(kept));
}
// clang-format on

#undef FA4_HIDE
#undef FA4_HIDE4
#undef FA4_F4

}  // namespace fa4::ptx
