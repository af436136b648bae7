// Approximate and NaN-keeping arithmetic, packing, matrix stores.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

// add.rn.ftz.f32 d, a, b;
// PTX ISA, "add", sm_20
__device__ inline float add_rn_ftz(float a, float b) {
  float d;
  asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}

// ex2.approx.ftz.f32 d, a;  2^a, largest relative error 2^-22
// PTX ISA, "ex2", sm_20
__device__ inline float ex2_approx_ftz(float a) {
  float d;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}

// lg2.approx.ftz.f32 d, a;
// PTX ISA, "lg2", sm_20
__device__ inline float lg2_approx_ftz(float a) {
  float d;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}

// rcp.approx.ftz.f32 d, a;  at most 1 ulp
// PTX ISA, "rcp", sm_20
__device__ inline float rcp_approx_ftz(float a) {
  float d;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}

// max.NaN.f32 d, a, b;  NaN if either is
// PTX ISA, "max", sm_80
__device__ inline float max_nan(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}

// max.u16x2 d, a, b;
// PTX ISA, "max", sm_90
__device__ inline uint32_t max_u16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("max.u16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// bmsk.clamp.b32 d, a, b;  b bits from bit a on, as many as there are
// PTX ISA, "bmsk", sm_70
__device__ inline uint32_t bmsk_clamp(uint32_t first, uint32_t count) {
  uint32_t d;
  asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(d) : "r"(first), "r"(count));
  return d;
}

// cvt.rn.bf16x2.f32 d, a, b;  a in the upper half
// PTX ISA, "cvt", sm_80
__device__ inline uint32_t cvt_rn_bf16x2(float upper, float lower) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(upper), "f"(lower));
  return d;
}

// cvt.rn.f16x2.f32 d, a, b;  a in the upper half
// PTX ISA, "cvt", sm_80
__device__ inline uint32_t cvt_rn_f16x2(float upper, float lower) {
  uint32_t d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(upper), "f"(lower));
  return d;
}

// cvt.rn.satfinite.e4m3x2.f32 d, a, b;  a in the upper byte; what is beyond 448 becomes it
// PTX ISA, "cvt", sm_89
__device__ inline uint16_t cvt_rn_satfinite_e4m3x2(float upper, float lower) {
  uint16_t d;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(upper), "f"(lower));
  return d;
}

// mov.b32 {l, h}, a; cvt.rn.f16x2.e4m3x2 d0, l; cvt.rn.f16x2.e4m3x2 d1, h;  exact, NaN stays NaN;
// the first two bytes become d0, from the lower half on. One statement, so that ptxas reads the
// upper half in place
// PTX ISA, "cvt", sm_89
__device__ inline void cvt_rn_f16x2_e4m3x2(uint32_t a, uint32_t* d0, uint32_t* d1) {
  asm("{\n\t"
      ".reg .b16 l, h;\n\t"
      "mov.b32 {l, h}, %2;\n\t"
      "cvt.rn.f16x2.e4m3x2 %0, l;\n\t"
      "cvt.rn.f16x2.e4m3x2 %1, h;\n\t"
      "}"
      : "=r"(*d0), "=r"(*d1)
      : "r"(a));
}

// cvt.f32.f16 d, a;
// PTX ISA, "cvt", sm_53
__device__ inline float cvt_f32_f16(uint16_t a) {
  float d;
  asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(a));
  return d;
}

// stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [p], r;
// PTX ISA, "stmatrix", sm_90
__device__ inline void stmatrix_x4(SmemAddr to, uint32_t r0, uint32_t r1, uint32_t r2,
                                   uint32_t r3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(to.value),
      "r"(r0), "r"(r1), "r"(r2), "r"(r3)
      : "memory");
}

}  // namespace fa4::ptx
