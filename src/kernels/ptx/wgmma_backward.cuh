// The shapes of wgmma that the backward needs beside those of wgmma.cuh: results that begin at
// zero, 64 columns, and operands whose contracted dimension runs over rows.
#pragma once

#include "kernels/ptx/wgmma.cuh"

namespace fa4::ptx {

// wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T d, a, b, scale-d, imm-scale-a, imm-scale-b,
// imm-trans-a, imm-trans-b; PTX ISA, "wgmma.mma_async", sm_90a
//
// A few steps of 16 in one statement. start: d (64 x N) = A B, whatever d was, so that no other
// instruction writes to d while products are under way; run: d += A B.
// WgmmaStep<N>::start<kSteps>, run<kSteps>: A (64 x 16 kSteps, K-major) and B (N x 16 kSteps,
// K-major)
//   by descriptors; a step is 32 bytes.
// WgmmaRowsStep<N>::start<kStepBytesA, kStepBytesB>, run<...>: four steps; A (64 x 64, M
// contiguous)
//   and B (64 x N, N contiguous) by descriptors; a step is kStepBytesA of A and kStepBytesB of B.
template <int N, Element kElement>
struct WgmmaStep;
template <int N, Element kElement>
struct WgmmaRowsStep;

// clang-format off
#define FA4_P0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FA4_P8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define FA4_P16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define FA4_P24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define FA4_P32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define FA4_P40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define FA4_D8(K, d, i) K(d[i]), K(d[i + 1]), K(d[i + 2]), K(d[i + 3]), K(d[i + 4]), K(d[i + 5]), K(d[i + 6]), K(d[i + 7])
#define FA4_P_64 FA4_P0 ", " FA4_P8 ", " FA4_P16 ", " FA4_P24
#define FA4_D_64(K, d) FA4_D8(K, d, 0), FA4_D8(K, d, 8), FA4_D8(K, d, 16), FA4_D8(K, d, 24)
#define FA4_P_96 FA4_P_64 ", " FA4_P32 ", " FA4_P40
#define FA4_D_96(K, d) FA4_D_64(K, d), FA4_D8(K, d, 32), FA4_D8(K, d, 40)
#define FA4_START(x) "=f"(x)
#define FA4_RUN(x) "+f"(x)
// One instruction; the accumulators are the statement's first N / 2 operands.
#define FA4_STEP(N, T, A, B, ADD, TRANS)                                                                  \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." T "." T " {" FA4_P_##N "}, " A ", " B ", " ADD ", 1, 1, " TRANS ";\n\t"
// N, T, start or run, whether the first step adds, and the operand numbers that follow N / 2 accumulators.
#define FA4_WGMMA(N, T, NAME, KIND, ADDS, R0, R1, R2, R3)                                                 \
    template <int kSteps>                                                                                 \
    __device__ static void NAME(float (&d)[N / 2], uint64_t a, uint64_t b) {                              \
      static_assert(kSteps == 4 || kSteps == 2);                                                          \
      if constexpr (kSteps == 4) {                                                                        \
        asm volatile("{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"                                     \
                     "setp.ne.b32 p, %" #R2 ", 0;\n\tsetp.ne.b32 one, %" #R3 ", 0;\n\t"                   \
                     FA4_STEP(N, T, "%" #R0, "%" #R1, "p", "0, 0")                                        \
                     "add.s64 a, %" #R0 ", 2;\n\tadd.s64 b, %" #R1 ", 2;\n\t"                             \
                     FA4_STEP(N, T, "a", "b", "one", "0, 0")                                              \
                     "add.s64 a, %" #R0 ", 4;\n\tadd.s64 b, %" #R1 ", 4;\n\t"                             \
                     FA4_STEP(N, T, "a", "b", "one", "0, 0")                                              \
                     "add.s64 a, %" #R0 ", 6;\n\tadd.s64 b, %" #R1 ", 6;\n\t"                             \
                     FA4_STEP(N, T, "a", "b", "one", "0, 0")                                              \
                     "}" : FA4_D_##N(KIND, d) : "l"(a), "l"(b), "r"(ADDS), "r"(1));                       \
      } else {                                                                                            \
        asm volatile("{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"                                     \
                     "setp.ne.b32 p, %" #R2 ", 0;\n\tsetp.ne.b32 one, %" #R3 ", 0;\n\t"                   \
                     FA4_STEP(N, T, "%" #R0, "%" #R1, "p", "0, 0")                                        \
                     "add.s64 a, %" #R0 ", 2;\n\tadd.s64 b, %" #R1 ", 2;\n\t"                             \
                     FA4_STEP(N, T, "a", "b", "one", "0, 0")                                              \
                     "}" : FA4_D_##N(KIND, d) : "l"(a), "l"(b), "r"(ADDS), "r"(1));                       \
      }                                                                                                   \
    }
#define FA4_WGMMA_STEP(N, T, ENUM, R0, R1, R2, R3)                                                        \
  template <>                                                                                             \
  struct WgmmaStep<N, Element::ENUM> {                                                                    \
    FA4_WGMMA(N, T, start, FA4_START, 0, R0, R1, R2, R3)                                                  \
    FA4_WGMMA(N, T, run, FA4_RUN, 1, R0, R1, R2, R3)                                                      \
  };
FA4_WGMMA_STEP(64, "bf16", kBF16, 32, 33, 34, 35)
FA4_WGMMA_STEP(64, "f16", kF16, 32, 33, 34, 35)
#define FA4_WGMMA_ROWS(N, T, NAME, KIND, ADDS, R0, R1, R2, R3, R4, R5)                                    \
    template <int kStepBytesA, int kStepBytesB>                                                           \
    __device__ static void NAME(float (&d)[N / 2], uint64_t a, uint64_t b) {                              \
      asm volatile("{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"                                       \
                   "setp.ne.b32 p, %" #R2 ", 0;\n\tsetp.ne.b32 one, %" #R3 ", 0;\n\t"                     \
                   FA4_STEP(N, T, "%" #R0, "%" #R1, "p", "1, 1")                                          \
                   "add.s64 a, %" #R0 ", %" #R4 ";\n\tadd.s64 b, %" #R1 ", %" #R5 ";\n\t"                 \
                   FA4_STEP(N, T, "a", "b", "one", "1, 1")                                                \
                   "add.s64 a, a, %" #R4 ";\n\tadd.s64 b, b, %" #R5 ";\n\t"                               \
                   FA4_STEP(N, T, "a", "b", "one", "1, 1")                                                \
                   "add.s64 a, a, %" #R4 ";\n\tadd.s64 b, b, %" #R5 ";\n\t"                               \
                   FA4_STEP(N, T, "a", "b", "one", "1, 1")                                                \
                   "}" : FA4_D_##N(KIND, d) : "l"(a), "l"(b), "r"(ADDS), "r"(1),                          \
                         "n"(kStepBytesA >> 4), "n"(kStepBytesB >> 4));                                   \
    }
#define FA4_WGMMA_ROWS_STEP(N, T, ENUM, R0, R1, R2, R3, R4, R5)                                           \
  template <>                                                                                             \
  struct WgmmaRowsStep<N, Element::ENUM> {                                                                \
    FA4_WGMMA_ROWS(N, T, start, FA4_START, 0, R0, R1, R2, R3, R4, R5)                                     \
    FA4_WGMMA_ROWS(N, T, run, FA4_RUN, 1, R0, R1, R2, R3, R4, R5)                                         \
  };
FA4_WGMMA_ROWS_STEP(64, "bf16", kBF16, 32, 33, 34, 35, 36, 37)
FA4_WGMMA_ROWS_STEP(64, "f16", kF16, 32, 33, 34, 35, 36, 37)
FA4_WGMMA_ROWS_STEP(96, "bf16", kBF16, 48, 49, 50, 51, 52, 53)
FA4_WGMMA_ROWS_STEP(96, "f16", kF16, 48, 49, 50, 51, 52, 53)
#undef FA4_WGMMA
#undef FA4_WGMMA_STEP
#undef FA4_WGMMA_ROWS
#undef FA4_WGMMA_ROWS_STEP
#undef FA4_START
#undef FA4_RUN
#undef FA4_STEP
#undef FA4_P_64
#undef FA4_D_64
#undef FA4_P_96
#undef FA4_D_96
#undef FA4_P0
#undef FA4_P8
#undef FA4_P16
#undef FA4_P24
#undef FA4_P32
#undef FA4_P40
#undef FA4_D8
// clang-format on

}  // namespace fa4::ptx
