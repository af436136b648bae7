// Two floats in a 64-bit register pair: one instruction works on both (Blackwell).
#pragma once

#include "kernels/tile/integers.h"

namespace fa4::ptx {

// The lower float in the lower half.
struct Float2 {
  uint64_t bits;
};

// mov.b64 d, {a, b};
// PTX ISA, "mov", sm_20
__device__ inline Float2 pack_float2(float lower, float upper) {
  Float2 d;
  asm("mov.b64 %0, {%1, %2};" : "=l"(d.bits) : "f"(lower), "f"(upper));
  return d;
}
__device__ inline Float2 pack_float2(float both) { return pack_float2(both, both); }

// mov.b64 {a, b}, d;
// PTX ISA, "mov", sm_20
__device__ inline void unpack_float2(Float2 d, float* lower, float* upper) {
  asm("mov.b64 {%0, %1}, %2;" : "=f"(*lower), "=f"(*upper) : "l"(d.bits));
}

// fma.rn.ftz.f32x2 d, a, b, c;
// PTX ISA, "fma", sm_100
__device__ inline Float2 fma_rn_ftz(Float2 a, Float2 b, Float2 c) {
  Float2 d;
  asm("fma.rn.ftz.f32x2 %0, %1, %2, %3;" : "=l"(d.bits) : "l"(a.bits), "l"(b.bits), "l"(c.bits));
  return d;
}

// fma.rm.ftz.f32x2 d, a, b, c;  towards minus infinity
// PTX ISA, "fma", sm_100
__device__ inline Float2 fma_rm_ftz(Float2 a, Float2 b, Float2 c) {
  Float2 d;
  asm("fma.rm.ftz.f32x2 %0, %1, %2, %3;" : "=l"(d.bits) : "l"(a.bits), "l"(b.bits), "l"(c.bits));
  return d;
}

// mul.rn.ftz.f32x2 d, a, b;
// PTX ISA, "mul", sm_100
__device__ inline Float2 mul_rn_ftz(Float2 a, Float2 b) {
  Float2 d;
  asm("mul.rn.ftz.f32x2 %0, %1, %2;" : "=l"(d.bits) : "l"(a.bits), "l"(b.bits));
  return d;
}

// add.rn.ftz.f32x2 d, a, b;
// PTX ISA, "add", sm_100
__device__ inline Float2 add_rn_ftz(Float2 a, Float2 b) {
  Float2 d;
  asm("add.rn.ftz.f32x2 %0, %1, %2;" : "=l"(d.bits) : "l"(a.bits), "l"(b.bits));
  return d;
}

// sub.rn.ftz.f32x2 d, a, b;
// PTX ISA, "sub", sm_100
__device__ inline Float2 sub_rn_ftz(Float2 a, Float2 b) {
  Float2 d;
  asm("sub.rn.ftz.f32x2 %0, %1, %2;" : "=l"(d.bits) : "l"(a.bits), "l"(b.bits));
  return d;
}

// max.NaN.f32 d, a, b, c;  NaN if one is
// PTX ISA, "max", sm_100
__device__ inline float max_nan(float a, float b, float c) {
  float d;
  asm("max.NaN.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

}  // namespace fa4::ptx
