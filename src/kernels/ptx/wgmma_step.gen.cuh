// Written by tools/generate_ptx.py; do not edit.
// clang-format off
//
// wgmma.mma_async as in wgmma_ss.gen.cuh, of results that begin at zero: `start` has them as
// outputs alone and 0 in the place of `accumulate`, `run` adds; 0 there when the kernel runs makes it
// begin at zero too, in registers that ptxas must suppose are added to.
#pragma once

#include "kernels/ptx/wgmma_forms.cuh"

namespace fa4::ptx {

#define FA4_D_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FA4_OPERANDS_64(d) \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define FA4_RESULTS_64(d) \
  "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), \
  "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), \
  "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), \
  "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31])
#define FA4_D_128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FA4_OPERANDS_128(d) \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define FA4_RESULTS_128(d) \
  "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), \
  "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), \
  "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), \
  "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31]), \
  "=f"(d[32]), "=f"(d[33]), "=f"(d[34]), "=f"(d[35]), "=f"(d[36]), "=f"(d[37]), "=f"(d[38]), "=f"(d[39]), \
  "=f"(d[40]), "=f"(d[41]), "=f"(d[42]), "=f"(d[43]), "=f"(d[44]), "=f"(d[45]), "=f"(d[46]), "=f"(d[47]), \
  "=f"(d[48]), "=f"(d[49]), "=f"(d[50]), "=f"(d[51]), "=f"(d[52]), "=f"(d[53]), "=f"(d[54]), "=f"(d[55]), \
  "=f"(d[56]), "=f"(d[57]), "=f"(d[58]), "=f"(d[59]), "=f"(d[60]), "=f"(d[61]), "=f"(d[62]), "=f"(d[63])
template <>
struct WgmmaStep<64, Element::kBF16> {
  template <int kSteps>
  __device__ static void start(float (&d)[32], uint64_t a, uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 2;\n\tadd.s64 b, %33, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 4;\n\tadd.s64 b, %33, 4;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 6;\n\tadd.s64 b, %33, 6;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_64(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 2;\n\tadd.s64 b, %33, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_64(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    } else {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_64(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    }
  }
  template <int kSteps>
  __device__ static void run(float (&d)[32], uint64_t a, uint64_t b, int accumulate = 1) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 2;\n\tadd.s64 b, %33, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 4;\n\tadd.s64 b, %33, 4;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 6;\n\tadd.s64 b, %33, 6;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 2;\n\tadd.s64 b, %33, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    } else {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    }
  }
};
template <>
struct WgmmaStep<64, Element::kF16> {
  template <int kSteps>
  __device__ static void start(float (&d)[32], uint64_t a, uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 2;\n\tadd.s64 b, %33, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 4;\n\tadd.s64 b, %33, 4;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 6;\n\tadd.s64 b, %33, 6;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_64(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 2;\n\tadd.s64 b, %33, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_64(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    } else {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_64(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    }
  }
  template <int kSteps>
  __device__ static void run(float (&d)[32], uint64_t a, uint64_t b, int accumulate = 1) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 2;\n\tadd.s64 b, %33, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 4;\n\tadd.s64 b, %33, 4;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 6;\n\tadd.s64 b, %33, 6;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %32, 2;\n\tadd.s64 b, %33, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    } else {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    }
  }
};
template <>
struct WgmmaStep<128, Element::kBF16> {
  template <int kSteps>
  __device__ static void start(float (&d)[64], uint64_t a, uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 2;\n\tadd.s64 b, %65, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 4;\n\tadd.s64 b, %65, 4;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 6;\n\tadd.s64 b, %65, 6;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_128(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 2;\n\tadd.s64 b, %65, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_128(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    } else {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_128(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    }
  }
  template <int kSteps>
  __device__ static void run(float (&d)[64], uint64_t a, uint64_t b, int accumulate = 1) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 2;\n\tadd.s64 b, %65, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 4;\n\tadd.s64 b, %65, 4;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 6;\n\tadd.s64 b, %65, 6;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 2;\n\tadd.s64 b, %65, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    } else {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    }
  }
};
template <>
struct WgmmaStep<128, Element::kF16> {
  template <int kSteps>
  __device__ static void start(float (&d)[64], uint64_t a, uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 2;\n\tadd.s64 b, %65, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 4;\n\tadd.s64 b, %65, 4;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 6;\n\tadd.s64 b, %65, 6;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_128(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 2;\n\tadd.s64 b, %65, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_128(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    } else {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_RESULTS_128(d)
          : "l"(a), "l"(b), "r"(0), "r"(1));
    }
  }
  template <int kSteps>
  __device__ static void run(float (&d)[64], uint64_t a, uint64_t b, int accumulate = 1) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 2;\n\tadd.s64 b, %65, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 4;\n\tadd.s64 b, %65, 4;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 6;\n\tadd.s64 b, %65, 6;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "add.s64 a, %64, 2;\n\tadd.s64 b, %65, 2;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, a, b, one, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    } else {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %66, 0;\n\tsetp.ne.b32 one, %67, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, %64, %65, p, 1, 1, 0, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "l"(a), "l"(b), "r"(accumulate), "r"(1));
    }
  }
};
#undef FA4_D_64
#undef FA4_OPERANDS_64
#undef FA4_RESULTS_64
#undef FA4_D_128
#undef FA4_OPERANDS_128
#undef FA4_RESULTS_128
#define FA4_D_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FA4_OPERANDS_64(d) \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define FA4_RESULTS_64(d) \
  "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), \
  "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), \
  "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), \
  "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31])
#define FA4_D_96 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define FA4_OPERANDS_96(d) \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define FA4_RESULTS_96(d) \
  "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), \
  "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), \
  "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), \
  "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31]), \
  "=f"(d[32]), "=f"(d[33]), "=f"(d[34]), "=f"(d[35]), "=f"(d[36]), "=f"(d[37]), "=f"(d[38]), "=f"(d[39]), \
  "=f"(d[40]), "=f"(d[41]), "=f"(d[42]), "=f"(d[43]), "=f"(d[44]), "=f"(d[45]), "=f"(d[46]), "=f"(d[47])
#define FA4_D_192 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FA4_OPERANDS_192(d) \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), \
  "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), \
  "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), \
  "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), \
  "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define FA4_RESULTS_192(d) \
  "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), \
  "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), \
  "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), \
  "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31]), \
  "=f"(d[32]), "=f"(d[33]), "=f"(d[34]), "=f"(d[35]), "=f"(d[36]), "=f"(d[37]), "=f"(d[38]), "=f"(d[39]), \
  "=f"(d[40]), "=f"(d[41]), "=f"(d[42]), "=f"(d[43]), "=f"(d[44]), "=f"(d[45]), "=f"(d[46]), "=f"(d[47]), \
  "=f"(d[48]), "=f"(d[49]), "=f"(d[50]), "=f"(d[51]), "=f"(d[52]), "=f"(d[53]), "=f"(d[54]), "=f"(d[55]), \
  "=f"(d[56]), "=f"(d[57]), "=f"(d[58]), "=f"(d[59]), "=f"(d[60]), "=f"(d[61]), "=f"(d[62]), "=f"(d[63]), \
  "=f"(d[64]), "=f"(d[65]), "=f"(d[66]), "=f"(d[67]), "=f"(d[68]), "=f"(d[69]), "=f"(d[70]), "=f"(d[71]), \
  "=f"(d[72]), "=f"(d[73]), "=f"(d[74]), "=f"(d[75]), "=f"(d[76]), "=f"(d[77]), "=f"(d[78]), "=f"(d[79]), \
  "=f"(d[80]), "=f"(d[81]), "=f"(d[82]), "=f"(d[83]), "=f"(d[84]), "=f"(d[85]), "=f"(d[86]), "=f"(d[87]), \
  "=f"(d[88]), "=f"(d[89]), "=f"(d[90]), "=f"(d[91]), "=f"(d[92]), "=f"(d[93]), "=f"(d[94]), "=f"(d[95])
template <>
struct WgmmaRowsStep<64, Element::kBF16> {
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void start(float (&d)[32], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %36;\n\tadd.s64 b, %33, %37;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %38;\n\tadd.s64 b, %33, %39;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %40;\n\tadd.s64 b, %33, %41;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_RESULTS_64(d)
          : "l"(a), "l"(b), "r"(0), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void run(float (&d)[32], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %36;\n\tadd.s64 b, %33, %37;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %38;\n\tadd.s64 b, %33, %39;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %40;\n\tadd.s64 b, %33, %41;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "l"(a), "l"(b), "r"(1), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
};
template <>
struct WgmmaRowsStep<64, Element::kF16> {
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void start(float (&d)[32], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %36;\n\tadd.s64 b, %33, %37;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %38;\n\tadd.s64 b, %33, %39;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %40;\n\tadd.s64 b, %33, %41;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_RESULTS_64(d)
          : "l"(a), "l"(b), "r"(0), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void run(float (&d)[32], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %34, 0;\n\tsetp.ne.b32 one, %35, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, %32, %33, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %36;\n\tadd.s64 b, %33, %37;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %38;\n\tadd.s64 b, %33, %39;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %32, %40;\n\tadd.s64 b, %33, %41;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "l"(a), "l"(b), "r"(1), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
};
template <>
struct WgmmaRowsStep<96, Element::kBF16> {
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void start(float (&d)[48], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %50, 0;\n\tsetp.ne.b32 one, %51, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, %48, %49, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %52;\n\tadd.s64 b, %49, %53;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %54;\n\tadd.s64 b, %49, %55;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %56;\n\tadd.s64 b, %49, %57;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_RESULTS_96(d)
          : "l"(a), "l"(b), "r"(0), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void run(float (&d)[48], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %50, 0;\n\tsetp.ne.b32 one, %51, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, %48, %49, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %52;\n\tadd.s64 b, %49, %53;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %54;\n\tadd.s64 b, %49, %55;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %56;\n\tadd.s64 b, %49, %57;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_96(d)
          : "l"(a), "l"(b), "r"(1), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
};
template <>
struct WgmmaRowsStep<96, Element::kF16> {
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void start(float (&d)[48], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %50, 0;\n\tsetp.ne.b32 one, %51, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, %48, %49, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %52;\n\tadd.s64 b, %49, %53;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %54;\n\tadd.s64 b, %49, %55;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %56;\n\tadd.s64 b, %49, %57;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_RESULTS_96(d)
          : "l"(a), "l"(b), "r"(0), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void run(float (&d)[48], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %50, 0;\n\tsetp.ne.b32 one, %51, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, %48, %49, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %52;\n\tadd.s64 b, %49, %53;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %54;\n\tadd.s64 b, %49, %55;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %48, %56;\n\tadd.s64 b, %49, %57;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_96(d)
          : "l"(a), "l"(b), "r"(1), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
};
template <>
struct WgmmaRowsStep<192, Element::kBF16> {
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void start(float (&d)[96], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %98, 0;\n\tsetp.ne.b32 one, %99, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, %96, %97, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %100;\n\tadd.s64 b, %97, %101;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %102;\n\tadd.s64 b, %97, %103;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %104;\n\tadd.s64 b, %97, %105;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_RESULTS_192(d)
          : "l"(a), "l"(b), "r"(0), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void run(float (&d)[96], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %98, 0;\n\tsetp.ne.b32 one, %99, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, %96, %97, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %100;\n\tadd.s64 b, %97, %101;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %102;\n\tadd.s64 b, %97, %103;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %104;\n\tadd.s64 b, %97, %105;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_192(d)
          : "l"(a), "l"(b), "r"(1), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
};
template <>
struct WgmmaRowsStep<192, Element::kF16> {
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void start(float (&d)[96], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %98, 0;\n\tsetp.ne.b32 one, %99, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, %96, %97, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %100;\n\tadd.s64 b, %97, %101;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %102;\n\tadd.s64 b, %97, %103;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %104;\n\tadd.s64 b, %97, %105;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_RESULTS_192(d)
          : "l"(a), "l"(b), "r"(0), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
  template <int kAStepBytes, int kBStepBytes>
  __device__ static void run(float (&d)[96], uint64_t a, uint64_t b) {
      asm volatile(
          "{\n\t.reg .pred p, one;\n\t.reg .b64 a, b;\n\t"
          "setp.ne.b32 p, %98, 0;\n\tsetp.ne.b32 one, %99, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, %96, %97, p, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %100;\n\tadd.s64 b, %97, %101;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %102;\n\tadd.s64 b, %97, %103;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "add.s64 a, %96, %104;\n\tadd.s64 b, %97, %105;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, a, b, one, 1, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_192(d)
          : "l"(a), "l"(b), "r"(1), "r"(1), "n"(1 * kAStepBytes >> 4), "n"(1 * kBStepBytes >> 4),
            "n"(2 * kAStepBytes >> 4), "n"(2 * kBStepBytes >> 4), "n"(3 * kAStepBytes >> 4), "n"(3 * kBStepBytes >> 4));
  }
};
#undef FA4_D_64
#undef FA4_OPERANDS_64
#undef FA4_RESULTS_64
#undef FA4_D_96
#undef FA4_OPERANDS_96
#undef FA4_RESULTS_96
#undef FA4_D_192
#undef FA4_OPERANDS_192
#undef FA4_RESULTS_192
}  // namespace fa4::ptx
