// Two floats in a 64-bit register pair: one instruction works on both (Blackwell).
#pragma once

#include "kernels/base/integers.h"

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

// A constant in both halves: no instruction, and nothing for the compiler to fold.
__device__ constexpr Float2 both_halves(float constant) {
  return {__builtin_bit_cast(uint32_t, constant) * 0x1'0000'0001ull};
}

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

// (a0, a1) become the result, unpacked in the same statement: the compiler handles one for three.
__device__ inline void fma_rn_ftz(float& a0, float& a1, Float2 b, Float2 c) {
  asm("{\n\t"
      ".reg .b64 a;\n\t"
      "mov.b64 a, {%0, %1};\n\t"
      "fma.rn.ftz.f32x2 a, a, %2, %3;\n\t"
      "mov.b64 {%0, %1}, a;\n\t"
      "}"
      : "+f"(a0), "+f"(a1)
      : "l"(b.bits), "l"(c.bits));
}

// mul.rn.ftz.f32x2 d, a, b;  (a0, a1) become the result, as above
// PTX ISA, "mul", sm_100
__device__ inline void mul_rn_ftz(float& a0, float& a1, Float2 b) {
  asm("{\n\t"
      ".reg .b64 a;\n\t"
      "mov.b64 a, {%0, %1};\n\t"
      "mul.rn.ftz.f32x2 a, a, %2;\n\t"
      "mov.b64 {%0, %1}, a;\n\t"
      "}"
      : "+f"(a0), "+f"(a1)
      : "l"(b.bits));
}

// mul.rn.f32x2 d, p, d;  (d0, d1) become p d, likewise, subnormal ones too
// PTX ISA, "mul", sm_100
__device__ inline void mul_rn(float& d0, float& d1, float p0, float p1) {
  asm("{\n\t"
      ".reg .b64 d, p;\n\t"
      "mov.b64 d, {%0, %1};\n\t"
      "mov.b64 p, {%2, %3};\n\t"
      "mul.rn.f32x2 d, p, d;\n\t"
      "mov.b64 {%0, %1}, d;\n\t"
      "}"
      : "+f"(d0), "+f"(d1)
      : "f"(p0), "f"(p1));
}

// add.rn.ftz.f32x2 d, a, b;
// PTX ISA, "add", sm_100
__device__ inline Float2 add_rn_ftz(Float2 a, Float2 b) {
  Float2 d;
  asm("add.rn.ftz.f32x2 %0, %1, %2;" : "=l"(d.bits) : "l"(a.bits), "l"(b.bits));
  return d;
}

// (b0, b1) is added to a.
__device__ inline void add_rn_ftz(Float2& a, float b0, float b1) {
  asm("{\n\t"
      ".reg .b64 b;\n\t"
      "mov.b64 b, {%1, %2};\n\t"
      "add.rn.ftz.f32x2 %0, %0, b;\n\t"
      "}"
      : "+l"(a.bits)
      : "f"(b0), "f"(b1));
}

// max.NaN.f32 d, a, b, c;  NaN if one is
// PTX ISA, "max", sm_100
__device__ inline float max_nan(float a, float b, float c) {
  float d;
  asm("max.NaN.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

// y = a scale + offset, clamped to [0, 1], NaN to 0; integer = y factor + magic, rounded towards
// minus infinity; fraction = y factor - (integer - magic): what floor left of y factor, when magic
// makes floor the low bits of a float. One statement, since each costs the compiler.
// fma.rn.ftz.sat.f32, fma.rm.ftz.f32x2, sub.rn.ftz.f32x2, fma.rn.ftz.f32x2
// PTX ISA, "fma", "sub", sm_100
struct SplitFloat2 {
  Float2 integer;
  Float2 fraction;
};
__device__ inline SplitFloat2 split_saturated(float a0, float a1, float scale, float offset,
                                              Float2 factor, Float2 magic) {
  SplitFloat2 d;
  asm("{\n\t"
      ".reg .f32 y0, y1;\n\t"
      ".reg .b64 y, n;\n\t"
      "fma.rn.ftz.sat.f32 y0, %2, %4, %5;\n\t"
      "fma.rn.ftz.sat.f32 y1, %3, %4, %5;\n\t"
      "mov.b64 y, {y0, y1};\n\t"
      "fma.rm.ftz.f32x2 %0, y, %6, %7;\n\t"
      "sub.rn.ftz.f32x2 n, %7, %0;\n\t"
      "fma.rn.ftz.f32x2 %1, y, %6, n;\n\t"
      "}"
      : "=&l"(d.integer.bits), "=l"(d.fraction.bits)
      : "f"(a0), "f"(a1), "f"(scale), "f"(offset), "l"(factor.bits), "l"(magic.bits));
  return d;
}

// d = a 2^n, n being the low bits of `integer`: shl.b32 n, integer, 23; add.s32 d, n, a;
// PTX ISA, "shl", "add", sm_20
__device__ inline void add_to_exponents(Float2 a, Float2 integer, float* d0, float* d1) {
  asm("{\n\t"
      ".reg .b32 n0, n1, a0, a1;\n\t"
      "mov.b64 {n0, n1}, %3;\n\t"
      "mov.b64 {a0, a1}, %2;\n\t"
      "shl.b32 n0, n0, 23;\n\t"
      "shl.b32 n1, n1, 23;\n\t"
      "add.s32 a0, n0, a0;\n\t"
      "add.s32 a1, n1, a1;\n\t"
      "mov.b32 %0, a0;\n\t"
      "mov.b32 %1, a1;\n\t"
      "}"
      : "=f"(*d0), "=f"(*d1)
      : "l"(a.bits), "l"(integer.bits));
}

}  // namespace fa4::ptx
