// Additions to global memory, accesses of it that order others, and hints.
#pragma once

#include "kernels/base/integers.h"

namespace fa4::ptx {

// red.relaxed.gpu.global.add.v4.f32 [a], {b0, b1, b2, b3};
// PTX ISA, "red", sm_90
__device__ inline void red_relaxed_gpu_add_v4_f32(float* to, float b0, float b1, float b2,
                                                  float b3) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(b0),
               "f"(b1), "f"(b2), "f"(b3)
               : "memory");
}

// st.global.cs.v4.b32 [a], {b0, b1, b2, b3};  not likely to be read soon: evicted first
// PTX ISA, "st", sm_20
__device__ inline void st_global_cs_v4(uint4* to, const uint4& b) {
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(b.x), "r"(b.y),
               "r"(b.z), "r"(b.w)
               : "memory");
}

// @p st.global.v2.f32 [a], {b0, b1};
// PTX ISA, "st", sm_20
__device__ inline void st_global_v2_f32_if(bool p, float* to, float b0, float b1) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %0, 0;\n\t@p st.global.v2.f32 [%1], {%2, %3};\n\t}" ::
          "r"(static_cast<int>(p)),
      "l"(to), "f"(b0), "f"(b1)
      : "memory");
}

// ld.acquire.gpu.global.u32 d, [a];
// PTX ISA, "ld", sm_70
__device__ inline uint32_t ld_acquire_gpu(const uint32_t* from) {
  uint32_t d;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(d) : "l"(from) : "memory");
  return d;
}

// red.release.gpu.global.add.u32 [a], b;
// PTX ISA, "red", sm_70
__device__ inline void red_release_gpu_add(uint32_t* to, uint32_t b) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(b) : "memory");
}

// atom.relaxed.gpu.global.add.u32 d, [a], b;
// PTX ISA, "atom", sm_60
__device__ inline uint32_t atom_relaxed_gpu_add(uint32_t* to, uint32_t b) {
  uint32_t d;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(d)
               : "l"(to), "r"(b)
               : "memory");
  return d;
}

// prefetch.global.L1 [a];  a hint: the line will soon be read
// PTX ISA, "prefetch, prefetchu", sm_20
__device__ inline void prefetch_l1(const void* from) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

}  // namespace fa4::ptx
