// Arithmetic of the backward on pairs of floats.
#pragma once

#include "kernels/ptx/packed.cuh"

namespace fa4::ptx {

// (d0, d1) become p d: mul.rn.ftz.f32x2. One statement, since each costs the compiler.
// PTX ISA, "mul", sm_100
__device__ inline void mul_rn_ftz(float& d0, float& d1, float p0, float p1) {
  asm("{\n\t"
      ".reg .b64 d, p;\n\t"
      "mov.b64 d, {%0, %1};\n\t"
      "mov.b64 p, {%2, %3};\n\t"
      "mul.rn.ftz.f32x2 d, p, d;\n\t"
      "mov.b64 {%0, %1}, d;\n\t"
      "}"
      : "+f"(d0), "+f"(d1)
      : "f"(p0), "f"(p1));
}

}  // namespace fa4::ptx
