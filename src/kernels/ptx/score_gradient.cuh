// Arithmetic of the backward on pairs and rows of floats.
#pragma once

#include "kernels/ptx/packed.cuh"

namespace fa4::ptx {

// (d0, d1) become p (d - delta): sub.rn.ftz.f32x2, mul.rn.ftz.f32x2. One statement, since each
// costs the compiler.
// PTX ISA, "sub", "mul", sm_100
__device__ inline void sub_mul_rn_ftz(float& d0, float& d1, Float2 delta, float p0, float p1) {
  asm("{\n\t"
      ".reg .b64 d, p;\n\t"
      "mov.b64 d, {%0, %1};\n\t"
      "mov.b64 p, {%3, %4};\n\t"
      "sub.rn.ftz.f32x2 d, d, %2;\n\t"
      "mul.rn.ftz.f32x2 d, p, d;\n\t"
      "mov.b64 {%0, %1}, d;\n\t"
      "}"
      : "+f"(d0), "+f"(d1)
      : "l"(delta.bits), "f"(p0), "f"(p1));
}

// clang-format off
#define FA4_KEEP(i) "and.b32 t, %32, 1 << " #i ";\n\tsetp.eq.u32 p, t, 0;\n\tselp.f32 %" #i ", 0f00000000, %" #i ", p;\n\t"
#define FA4_KEEP4(a, b, c, d) FA4_KEEP(a) FA4_KEEP(b) FA4_KEEP(c) FA4_KEEP(d)
#define FA4_F4(r, i) "+f"(r[i]), "+f"(r[i + 1]), "+f"(r[i + 2]), "+f"(r[i + 3])

// r[i] becomes 0 where bit i of `kept` is 0, whatever it was: as hide_others (select.cuh).
// PTX ISA, "selp", sm_20
__device__ inline void zero_others(float (&r)[32], uint32_t kept) {
  asm("{\n\t"
      ".reg .pred p;\n\t"
      ".reg .b32 t;\n\t"
      FA4_KEEP4(0, 1, 2, 3) FA4_KEEP4(4, 5, 6, 7) FA4_KEEP4(8, 9, 10, 11) FA4_KEEP4(12, 13, 14, 15)
      FA4_KEEP4(16, 17, 18, 19) FA4_KEEP4(20, 21, 22, 23) FA4_KEEP4(24, 25, 26, 27) FA4_KEEP4(28, 29, 30, 31)
      "}"
      : FA4_F4(r, 0), FA4_F4(r, 4), FA4_F4(r, 8), FA4_F4(r, 12), FA4_F4(r, 16), FA4_F4(r, 20), FA4_F4(r, 24), FA4_F4(r, 28)
      : "r"(kept));
}
// clang-format on

#undef FA4_KEEP
#undef FA4_KEEP4
#undef FA4_F4

}  // namespace fa4::ptx
