// Warpgroup matrix multiply (Hopper): a 64 x N float accumulator in the registers of 128 threads.
//
// Thread t of a warpgroup holds, of row 16 (t / 32) + (t % 32) / 4 + 8 r and column 8 j + 2 (t % 4)
// + c, the element d[4 j + 2 r + c] (PTX ISA, "wgmma register fragment layouts").
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/integers.h"

namespace fa4::ptx {

// wgmma.fence.sync.aligned;  orders register accesses before the wgmmas that follow
// PTX ISA, "wgmma.fence", sm_90a
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group.sync.aligned;
// PTX ISA, "wgmma.commit_group", sm_90a
__device__ inline void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// wgmma.wait_group.sync.aligned N;  until at most N groups are pending
// PTX ISA, "wgmma.wait_group", sm_90a
template <int kPending>
__device__ inline void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// No instruction: keeps the compiler from moving accesses of these registers across this point.
template <int kCount>
__device__ inline void fence_registers(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T d, a, b, scale-d, imm-scale-a, imm-scale-b,
// imm-trans-a, imm-trans-b; PTX ISA, "wgmma.mma_async", sm_90a
//
// A few steps of 16 in one statement, since each operand of a statement costs the compiler:
// WgmmaSs::run<kSteps>: d (64 x N) = A B + (accumulate ? d : 0); A (64 x 16 kSteps, K-major) and B
//   (N x 16 kSteps, K-major) by descriptors; a step is 32 bytes.
// WgmmaRs::run<kSteps, kStepBytes>: d (64 x N) += A B; A in registers, B (16 kSteps x N, N
//   contiguous) by descriptor; a step is kStepBytes of B.
template <int N, Element kElement>
struct WgmmaSs;
template <int N, Element kElement>
struct WgmmaRs;

// clang-format off
#define FA4_P0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FA4_P8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define FA4_P16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define FA4_P24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define FA4_P32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define FA4_P40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define FA4_P48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define FA4_P56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define FA4_P64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define FA4_P72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define FA4_P80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define FA4_P88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define FA4_P96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define FA4_P104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define FA4_P112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define FA4_P120 "%120, %121, %122, %123, %124, %125, %126, %127"
#define FA4_D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FA4_P_64 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24
#define FA4_D_64(d) FA4_D8(d, 0), FA4_D8(d, 8), FA4_D8(d, 16), FA4_D8(d, 24)
#define FA4_P_80 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24 ", " FA4_P32
#define FA4_D_80(d) FA4_D8(d, 0), FA4_D8(d, 8), FA4_D8(d, 16), FA4_D8(d, 24), FA4_D8(d, 32)
#define FA4_P_96 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24 ", " FA4_P32 ", " FA4_P40
#define FA4_D_96(d) FA4_D8(d, 0), FA4_D8(d, 8), FA4_D8(d, 16), FA4_D8(d, 24), FA4_D8(d, 32), FA4_D8(d, 40)
#define FA4_P_112 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24 ", " FA4_P32 ", " FA4_P40 ", " FA4_P48
#define FA4_D_112(d) FA4_D8(d, 0), FA4_D8(d, 8), FA4_D8(d, 16), FA4_D8(d, 24), FA4_D8(d, 32), FA4_D8(d, 40), FA4_D8(d, 48)
#define FA4_P_128 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24 ", " FA4_P32 ", " FA4_P40 ", " FA4_P48 ", " FA4_P56
#define FA4_D_128(d) FA4_D8(d, 0), FA4_D8(d, 8), FA4_D8(d, 16), FA4_D8(d, 24), FA4_D8(d, 32), FA4_D8(d, 40), FA4_D8(d, 48), FA4_D8(d, 56)
#define FA4_P_160 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24 ", " FA4_P32 ", " FA4_P40 ", " FA4_P48 ", " FA4_P56 ", " FA4_P64 ", " FA4_P72
#define FA4_D_160(d) FA4_D8(d, 0), FA4_D8(d, 8), FA4_D8(d, 16), FA4_D8(d, 24), FA4_D8(d, 32), FA4_D8(d, 40), FA4_D8(d, 48), FA4_D8(d, 56), FA4_D8(d, 64), FA4_D8(d, 72)
#define FA4_P_192 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24 ", " FA4_P32 ", " FA4_P40 ", " FA4_P48 ", " FA4_P56 ", " FA4_P64 ", " FA4_P72 ", " FA4_P80 ", " FA4_P88
#define FA4_D_192(d) FA4_D8(d, 0), FA4_D8(d, 8), FA4_D8(d, 16), FA4_D8(d, 24), FA4_D8(d, 32), FA4_D8(d, 40), FA4_D8(d, 48), FA4_D8(d, 56), FA4_D8(d, 64), FA4_D8(d, 72), FA4_D8(d, 80), FA4_D8(d, 88)
#define FA4_P_256 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24 ", " FA4_P32 ", " FA4_P40 ", " FA4_P48 ", " FA4_P56 ", " FA4_P64 ", " FA4_P72 ", " FA4_P80 ", " FA4_P88 ", " FA4_P96 ", " FA4_P104 ", " FA4_P112 ", " FA4_P120
#define FA4_D_256(d) FA4_D8(d, 0), FA4_D8(d, 8), FA4_D8(d, 16), FA4_D8(d, 24), FA4_D8(d, 32), FA4_D8(d, 40), FA4_D8(d, 48), FA4_D8(d, 56), FA4_D8(d, 64), FA4_D8(d, 72), FA4_D8(d, 80), FA4_D8(d, 88), FA4_D8(d, 96), FA4_D8(d, 104), FA4_D8(d, 112), FA4_D8(d, 120)
#define FA4_A4(a) "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3])
// One instruction; the accumulators are the statement's first N / 2 operands.
#define FA4_SS_STEP(N, T, A, B, ADD)                                                                             \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." T "." T " {" FA4_P_##N "}, " A ", " B ", " ADD ", 1, 1, 0, 0;\n\t"
#define FA4_RS_STEP(N, T, A0, A1, A2, A3, B)                                                                     \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." T "." T " {" FA4_P_##N "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, " B ", one, 1, 1, 1;\n\t"
// N, T, enumerator, and the operand numbers that follow N / 2 accumulators.
#define FA4_WGMMA_SS(N, T, ENUM, R0, R1, R2, R3)                                                                 \
  template <>                                                                                                    \
  struct WgmmaSs<N, Element::ENUM> {                                                                             \
    template <int kSteps>                                                                                        \
    __device__ static void run(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {                      \
      static_assert(kSteps == 4 || kSteps == 2);                                                                 \
      if constexpr (kSteps == 4) {                                                                               \
        asm volatile("{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"                                            \
                     "setp.ne.b32 p, %" #R2 ", 0;\n\tsetp.ne.b32 one, %" #R3 ", 0;\n\t"                          \
                     FA4_SS_STEP(N, T, "%" #R0, "%" #R1, "p")                                                    \
                     "add.s64 a, %" #R0 ", 2;\n\tadd.s64 b, %" #R1 ", 2;\n\t"                                    \
                     FA4_SS_STEP(N, T, "a", "b", "one")                                                          \
                     "add.s64 a, %" #R0 ", 4;\n\tadd.s64 b, %" #R1 ", 4;\n\t"                                    \
                     FA4_SS_STEP(N, T, "a", "b", "one")                                                          \
                     "add.s64 a, %" #R0 ", 6;\n\tadd.s64 b, %" #R1 ", 6;\n\t"                                    \
                     FA4_SS_STEP(N, T, "a", "b", "one")                                                          \
                     "}" : FA4_D_##N(d) : "l"(a), "l"(b), "r"(accumulate), "r"(1));                              \
      } else {                                                                                                   \
        asm volatile("{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"                                            \
                     "setp.ne.b32 p, %" #R2 ", 0;\n\tsetp.ne.b32 one, %" #R3 ", 0;\n\t"                          \
                     FA4_SS_STEP(N, T, "%" #R0, "%" #R1, "p")                                                    \
                     "add.s64 a, %" #R0 ", 2;\n\tadd.s64 b, %" #R1 ", 2;\n\t"                                    \
                     FA4_SS_STEP(N, T, "a", "b", "one")                                                          \
                     "}" : FA4_D_##N(d) : "l"(a), "l"(b), "r"(accumulate), "r"(1));                              \
      }                                                                                                          \
    }                                                                                                            \
  };
FA4_WGMMA_SS(80, "bf16", kBF16, 40, 41, 42, 43)
FA4_WGMMA_SS(80, "f16", kF16, 40, 41, 42, 43)
FA4_WGMMA_SS(96, "bf16", kBF16, 48, 49, 50, 51)
FA4_WGMMA_SS(96, "f16", kF16, 48, 49, 50, 51)
FA4_WGMMA_SS(112, "bf16", kBF16, 56, 57, 58, 59)
FA4_WGMMA_SS(112, "f16", kF16, 56, 57, 58, 59)
FA4_WGMMA_SS(128, "bf16", kBF16, 64, 65, 66, 67)
FA4_WGMMA_SS(128, "f16", kF16, 64, 65, 66, 67)
FA4_WGMMA_SS(160, "bf16", kBF16, 80, 81, 82, 83)
FA4_WGMMA_SS(160, "f16", kF16, 80, 81, 82, 83)
FA4_WGMMA_SS(256, "bf16", kBF16, 128, 129, 130, 131)
#define FA4_WGMMA_RS(N, T, ENUM, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10)                                    \
  template <>                                                                                                    \
  struct WgmmaRs<N, Element::ENUM> {                                                                             \
    template <int kSteps, int kStepBytes>                                                                        \
    __device__ static void run(float (&d)[N / 2], const uint32_t (*a)[4], uint64_t b) {                          \
      static_assert(kSteps == 2 || kSteps == 1);                                                                 \
      if constexpr (kSteps == 2) {                                                                               \
        asm volatile("{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %" #R9 ", 0;\n\t"                 \
                     FA4_RS_STEP(N, T, R0, R1, R2, R3, "%" #R8)                                                  \
                     "add.s64 b, %" #R8 ", %" #R10 ";\n\t"                                                       \
                     FA4_RS_STEP(N, T, R4, R5, R6, R7, "b")                                                      \
                     "}" : FA4_D_##N(d) : FA4_A4(a[0]), FA4_A4(a[1]), "l"(b), "r"(1), "n"(kStepBytes >> 4));     \
      } else {                                                                                                   \
        asm volatile("{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %" #R5 ", 0;\n\t"                                 \
                     FA4_RS_STEP(N, T, R0, R1, R2, R3, "%" #R4)                                                  \
                     "}" : FA4_D_##N(d) : FA4_A4(a[0]), "l"(b), "r"(1));                                         \
      }                                                                                                          \
    }                                                                                                            \
  };
FA4_WGMMA_RS(64, "bf16", kBF16, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42)
FA4_WGMMA_RS(64, "f16", kF16, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42)
FA4_WGMMA_RS(96, "bf16", kBF16, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58)
FA4_WGMMA_RS(96, "f16", kF16, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58)
FA4_WGMMA_RS(128, "bf16", kBF16, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74)
FA4_WGMMA_RS(128, "f16", kF16, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74)
FA4_WGMMA_RS(192, "bf16", kBF16, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106)
FA4_WGMMA_RS(192, "f16", kF16, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106)
FA4_WGMMA_RS(256, "bf16", kBF16, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138)
FA4_WGMMA_RS(256, "f16", kF16, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138)
#undef FA4_WGMMA_SS
#undef FA4_WGMMA_RS
#undef FA4_SS_STEP
#undef FA4_RS_STEP
#undef FA4_A4
#undef FA4_P_64
#undef FA4_D_64
#undef FA4_P_80
#undef FA4_D_80
#undef FA4_P_96
#undef FA4_D_96
#undef FA4_P_112
#undef FA4_D_112
#undef FA4_P_128
#undef FA4_D_128
#undef FA4_P_160
#undef FA4_D_160
#undef FA4_P_192
#undef FA4_D_192
#undef FA4_P_256
#undef FA4_D_256
#undef FA4_P0
#undef FA4_P8
#undef FA4_P16
#undef FA4_P24
#undef FA4_P32
#undef FA4_P40
#undef FA4_P48
#undef FA4_P56
#undef FA4_P64
#undef FA4_P72
#undef FA4_P80
#undef FA4_P88
#undef FA4_P96
#undef FA4_P104
#undef FA4_P112
#undef FA4_P120
#undef FA4_D8
// clang-format on

}  // namespace fa4::ptx
