// Replacing 32 floats by a mask of bits.
#pragma once

#include "kernels/base/integers.h"

namespace fa4::ptx {

// clang-format off
#define FA4_KEEP(i, OTHER) "and.b32 t, %32, 1 << " #i ";\n\tsetp.eq.u32 p, t, 0;\n\tselp.f32 %" #i ", " OTHER ", %" #i ", p;\n\t"
#define FA4_KEEP4(a, b, c, d, OTHER) FA4_KEEP(a, OTHER) FA4_KEEP(b, OTHER) FA4_KEEP(c, OTHER) FA4_KEEP(d, OTHER)
#define FA4_F4(r, i) "+f"(r[i]), "+f"(r[i + 1]), "+f"(r[i + 2]), "+f"(r[i + 3])
// and.b32, setp.eq.u32, selp.f32 for each, which ptxas makes R2P and FSEL of. One statement, since
// each costs the compiler.
#define FA4_KEEP32(r, kept, OTHER)                                                                                                        \
  asm("{\n\t"                                                                                                                             \
      ".reg .pred p;\n\t"                                                                                                                 \
      ".reg .b32 t;\n\t"                                                                                                                  \
      FA4_KEEP4(0, 1, 2, 3, OTHER) FA4_KEEP4(4, 5, 6, 7, OTHER) FA4_KEEP4(8, 9, 10, 11, OTHER) FA4_KEEP4(12, 13, 14, 15, OTHER)           \
      FA4_KEEP4(16, 17, 18, 19, OTHER) FA4_KEEP4(20, 21, 22, 23, OTHER) FA4_KEEP4(24, 25, 26, 27, OTHER) FA4_KEEP4(28, 29, 30, 31, OTHER) \
      "}"                                                                                                                                 \
      : FA4_F4(r, 0), FA4_F4(r, 4), FA4_F4(r, 8), FA4_F4(r, 12), FA4_F4(r, 16), FA4_F4(r, 20), FA4_F4(r, 24), FA4_F4(r, 28)               \
      : "r"(kept))

// r[i] becomes -inf where bit i of `kept` is 0.
// PTX ISA, "selp", sm_20
__device__ inline void hide_others(float (&r)[32], uint32_t kept) { FA4_KEEP32(r, kept, "0fFF800000"); }

// r[i] becomes 0 where bit i of `kept` is 0, whatever it was.
// PTX ISA, "selp", sm_20
__device__ inline void zero_others(float (&r)[32], uint32_t kept) { FA4_KEEP32(r, kept, "0f00000000"); }
// clang-format on

#undef FA4_KEEP
#undef FA4_KEEP4
#undef FA4_KEEP32
#undef FA4_F4

}  // namespace fa4::ptx
