// Arithmetic of the backward on pairs of floats.
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

}  // namespace fa4::ptx
