// Written by tools/generate_ptx.py; do not edit.
// clang-format off
//
// wgmma.mma_async of A in registers, one, two or four steps of 16 in one statement, since each operand
// of a statement costs the compiler. Two steps at N = 16, D in %0 to %7, as PTX:
//
//   { .reg .pred one;  .reg .b64 b;  setp.ne.b32 one, %17, 0;
//     wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, ..., %7}, {%8, %9, %10, %11}, %16, one, 1, 1, 1;
//     add.s64 b, %16, %18;
//     wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, ..., %7}, {%12, %13, %14, %15}, b, one, 1, 1, 1; }
//
// %8 to %15 are A, %16 is the descriptor of B, %18 a step of it. The last number is imm-trans-b, 1
// when B is MN-major.
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
#define FA4_D_256 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FA4_OPERANDS_256(d) \
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
  "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), \
  "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), \
  "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), \
  "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), \
  "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
template <>
struct WgmmaRs<64, Element::kBF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[32], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %49, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %48, one, 1, 1, 1;\n\t"
          "add.s64 b, %48, %50;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%36, %37, %38, %39}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %48, %51;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%40, %41, %42, %43}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %48, %52;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%44, %45, %46, %47}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %41, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %40, one, 1, 1, 1;\n\t"
          "add.s64 b, %40, %42;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%36, %37, %38, %39}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %37, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %36, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<64, Element::kF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[32], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %49, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %48, one, 1, 1, 1;\n\t"
          "add.s64 b, %48, %50;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%36, %37, %38, %39}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %48, %51;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%40, %41, %42, %43}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %48, %52;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%44, %45, %46, %47}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %41, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %40, one, 1, 1, 1;\n\t"
          "add.s64 b, %40, %42;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%36, %37, %38, %39}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %37, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %36, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<96, Element::kBF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[48], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %65, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, {%48, %49, %50, %51}, %64, one, 1, 1, 1;\n\t"
          "add.s64 b, %64, %66;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, {%52, %53, %54, %55}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %64, %67;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, {%56, %57, %58, %59}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %64, %68;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, {%60, %61, %62, %63}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_96(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %57, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, {%48, %49, %50, %51}, %56, one, 1, 1, 1;\n\t"
          "add.s64 b, %56, %58;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, {%52, %53, %54, %55}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_96(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %53, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" FA4_D_96 "}, {%48, %49, %50, %51}, %52, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_96(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<96, Element::kF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[48], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %65, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, {%48, %49, %50, %51}, %64, one, 1, 1, 1;\n\t"
          "add.s64 b, %64, %66;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, {%52, %53, %54, %55}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %64, %67;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, {%56, %57, %58, %59}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %64, %68;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, {%60, %61, %62, %63}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_96(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %57, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, {%48, %49, %50, %51}, %56, one, 1, 1, 1;\n\t"
          "add.s64 b, %56, %58;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, {%52, %53, %54, %55}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_96(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %53, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" FA4_D_96 "}, {%48, %49, %50, %51}, %52, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_96(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<128, Element::kBF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[64], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %81, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %80, one, 1, 1, 1;\n\t"
          "add.s64 b, %80, %82;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%68, %69, %70, %71}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %80, %83;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%72, %73, %74, %75}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %80, %84;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%76, %77, %78, %79}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %73, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %72, one, 1, 1, 1;\n\t"
          "add.s64 b, %72, %74;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%68, %69, %70, %71}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %69, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %68, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<128, Element::kF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[64], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %81, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %80, one, 1, 1, 1;\n\t"
          "add.s64 b, %80, %82;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%68, %69, %70, %71}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %80, %83;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%72, %73, %74, %75}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %80, %84;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%76, %77, %78, %79}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %73, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %72, one, 1, 1, 1;\n\t"
          "add.s64 b, %72, %74;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%68, %69, %70, %71}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %69, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %68, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<192, Element::kBF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[96], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %113, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, {%96, %97, %98, %99}, %112, one, 1, 1, 1;\n\t"
          "add.s64 b, %112, %114;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, {%100, %101, %102, %103}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %112, %115;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, {%104, %105, %106, %107}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %112, %116;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, {%108, %109, %110, %111}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_192(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %105, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, {%96, %97, %98, %99}, %104, one, 1, 1, 1;\n\t"
          "add.s64 b, %104, %106;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, {%100, %101, %102, %103}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_192(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %101, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" FA4_D_192 "}, {%96, %97, %98, %99}, %100, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_192(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<192, Element::kF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[96], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %113, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, {%96, %97, %98, %99}, %112, one, 1, 1, 1;\n\t"
          "add.s64 b, %112, %114;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, {%100, %101, %102, %103}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %112, %115;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, {%104, %105, %106, %107}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %112, %116;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, {%108, %109, %110, %111}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_192(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %105, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, {%96, %97, %98, %99}, %104, one, 1, 1, 1;\n\t"
          "add.s64 b, %104, %106;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, {%100, %101, %102, %103}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_192(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %101, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" FA4_D_192 "}, {%96, %97, %98, %99}, %100, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_192(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<256, Element::kBF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[128], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %145, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FA4_D_256 "}, {%128, %129, %130, %131}, %144, one, 1, 1, 1;\n\t"
          "add.s64 b, %144, %146;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FA4_D_256 "}, {%132, %133, %134, %135}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %144, %147;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FA4_D_256 "}, {%136, %137, %138, %139}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %144, %148;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FA4_D_256 "}, {%140, %141, %142, %143}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_256(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %137, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FA4_D_256 "}, {%128, %129, %130, %131}, %136, one, 1, 1, 1;\n\t"
          "add.s64 b, %136, %138;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FA4_D_256 "}, {%132, %133, %134, %135}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_256(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %133, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FA4_D_256 "}, {%128, %129, %130, %131}, %132, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_256(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<256, Element::kF16, Major::kMn> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[128], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %145, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FA4_D_256 "}, {%128, %129, %130, %131}, %144, one, 1, 1, 1;\n\t"
          "add.s64 b, %144, %146;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FA4_D_256 "}, {%132, %133, %134, %135}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %144, %147;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FA4_D_256 "}, {%136, %137, %138, %139}, b, one, 1, 1, 1;\n\t"
          "add.s64 b, %144, %148;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FA4_D_256 "}, {%140, %141, %142, %143}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_256(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %137, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FA4_D_256 "}, {%128, %129, %130, %131}, %136, one, 1, 1, 1;\n\t"
          "add.s64 b, %136, %138;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FA4_D_256 "}, {%132, %133, %134, %135}, b, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_256(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %133, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FA4_D_256 "}, {%128, %129, %130, %131}, %132, one, 1, 1, 1;\n\t"
          "}"
          : FA4_OPERANDS_256(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<64, Element::kBF16, Major::kK> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[32], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %49, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %48, one, 1, 1, 0;\n\t"
          "add.s64 b, %48, %50;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%36, %37, %38, %39}, b, one, 1, 1, 0;\n\t"
          "add.s64 b, %48, %51;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%40, %41, %42, %43}, b, one, 1, 1, 0;\n\t"
          "add.s64 b, %48, %52;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%44, %45, %46, %47}, b, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %41, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %40, one, 1, 1, 0;\n\t"
          "add.s64 b, %40, %42;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%36, %37, %38, %39}, b, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %37, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %36, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<64, Element::kF16, Major::kK> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[32], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %49, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %48, one, 1, 1, 0;\n\t"
          "add.s64 b, %48, %50;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%36, %37, %38, %39}, b, one, 1, 1, 0;\n\t"
          "add.s64 b, %48, %51;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%40, %41, %42, %43}, b, one, 1, 1, 0;\n\t"
          "add.s64 b, %48, %52;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%44, %45, %46, %47}, b, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %41, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %40, one, 1, 1, 0;\n\t"
          "add.s64 b, %40, %42;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%36, %37, %38, %39}, b, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %37, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FA4_D_64 "}, {%32, %33, %34, %35}, %36, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_64(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<128, Element::kBF16, Major::kK> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[64], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %81, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %80, one, 1, 1, 0;\n\t"
          "add.s64 b, %80, %82;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%68, %69, %70, %71}, b, one, 1, 1, 0;\n\t"
          "add.s64 b, %80, %83;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%72, %73, %74, %75}, b, one, 1, 1, 0;\n\t"
          "add.s64 b, %80, %84;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%76, %77, %78, %79}, b, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %73, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %72, one, 1, 1, 0;\n\t"
          "add.s64 b, %72, %74;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%68, %69, %70, %71}, b, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %69, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %68, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
template <>
struct WgmmaRs<128, Element::kF16, Major::kK> {
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[64], const uint32_t (*a)[4], uint64_t b) {
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %81, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %80, one, 1, 1, 0;\n\t"
          "add.s64 b, %80, %82;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%68, %69, %70, %71}, b, one, 1, 1, 0;\n\t"
          "add.s64 b, %80, %83;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%72, %73, %74, %75}, b, one, 1, 1, 0;\n\t"
          "add.s64 b, %80, %84;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%76, %77, %78, %79}, b, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b), "r"(1),
            "n"(1 * kStepBytes >> 4), "n"(2 * kStepBytes >> 4), "n"(3 * kStepBytes >> 4));
    } else if constexpr (kSteps == 2) {
      asm volatile(
          "{\n\t.reg .pred one;\n\t.reg .b64 b;\n\tsetp.ne.b32 one, %73, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %72, one, 1, 1, 0;\n\t"
          "add.s64 b, %72, %74;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%68, %69, %70, %71}, b, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),
            "r"(a[1][2]), "r"(a[1][3]), "l"(b), "r"(1), "n"(1 * kStepBytes >> 4));
    } else {
      asm volatile(
          "{\n\t.reg .pred one;\n\tsetp.ne.b32 one, %69, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FA4_D_128 "}, {%64, %65, %66, %67}, %68, one, 1, 1, 0;\n\t"
          "}"
          : FA4_OPERANDS_128(d)
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "l"(b), "r"(1));
    }
  }
};
#undef FA4_D_64
#undef FA4_OPERANDS_64
#undef FA4_D_96
#undef FA4_OPERANDS_96
#undef FA4_D_128
#undef FA4_OPERANDS_128
#undef FA4_D_192
#undef FA4_OPERANDS_192
#undef FA4_D_256
#undef FA4_OPERANDS_256
}  // namespace fa4::ptx
