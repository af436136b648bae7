// Written by tools/generate_ptx.py; do not edit.
// clang-format off
//
// tcgen05.mma.cta_group.kind::f16 [d], a-desc, b-desc, idesc, enable-input-d;
// tcgen05.mma.cta_group.kind::f16 [d], [a], b-desc, idesc, enable-input-d;
// d = A B + (accumulate ? d : 0); A in shared memory, or in tensor memory, two elements a column
// PTX ISA, "tcgen05.mma", sm_100a
//
// kSteps products of 16 in one statement: one for each, with its descriptors, cost the compiler
// more than all else that the thread does. A descriptor's low word is a + kA + step kAStep (of A in
// tensor memory that is its column); the high one is the same for all. One step of A in shared memory:
//
//   { .reg .pred p, one;  .reg .b32 low;  .reg .b64 a, b;
//     setp.ne.u32 p, %5, 0;  setp.eq.u32 one, 0, 0;
//     add.u32 low, %1, %7;  mov.b64 a, {low, %3};
//     add.u32 low, %2, %8;  mov.b64 b, {low, %3};
//     tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, p; }
//
// %0 is d, %1 and %2 the low words, %3 the high one, %4 idesc, %5 accumulate; later steps take `one`.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

template <int kCtaGroup, int kSteps, int kA, int kAStep, int kB, int kBStep>
__device__ inline void tcgen05_mma_f16_ss(TmemAddr d, uint32_t a, uint32_t b, uint32_t high, uint32_t idesc, bool accumulate) {
  static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
  if constexpr (kSteps == 4) {
    asm volatile(
        "{\n\t.reg .pred p, one;\n\t.reg .b32 low;\n\t.reg .b64 a, b;\n\tsetp.ne.u32 p, %5, 0;\n\tsetp.eq.u32 one, 0, 0;\n\t"
        "add.u32 low, %1, %7;\n\tmov.b64 a, {low, %3};\n\t"
        "add.u32 low, %2, %8;\n\tmov.b64 b, {low, %3};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, p;\n\t"
        "add.u32 low, %1, %9;\n\tmov.b64 a, {low, %3};\n\t"
        "add.u32 low, %2, %10;\n\tmov.b64 b, {low, %3};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, one;\n\t"
        "add.u32 low, %1, %11;\n\tmov.b64 a, {low, %3};\n\t"
        "add.u32 low, %2, %12;\n\tmov.b64 b, {low, %3};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, one;\n\t"
        "add.u32 low, %1, %13;\n\tmov.b64 a, {low, %3};\n\t"
        "add.u32 low, %2, %14;\n\tmov.b64 b, {low, %3};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, one;\n\t"
        "}"
        :
        : "r"(d.value), "r"(a), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)),
          "n"(kCtaGroup), "n"(kA + 0 * kAStep), "n"(kB + 0 * kBStep), "n"(kA + 1 * kAStep), "n"(kB + 1 * kBStep), "n"(kA + 2 * kAStep),
          "n"(kB + 2 * kBStep), "n"(kA + 3 * kAStep), "n"(kB + 3 * kBStep)
        : "memory");
  } else if constexpr (kSteps == 2) {
    asm volatile(
        "{\n\t.reg .pred p, one;\n\t.reg .b32 low;\n\t.reg .b64 a, b;\n\tsetp.ne.u32 p, %5, 0;\n\tsetp.eq.u32 one, 0, 0;\n\t"
        "add.u32 low, %1, %7;\n\tmov.b64 a, {low, %3};\n\t"
        "add.u32 low, %2, %8;\n\tmov.b64 b, {low, %3};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, p;\n\t"
        "add.u32 low, %1, %9;\n\tmov.b64 a, {low, %3};\n\t"
        "add.u32 low, %2, %10;\n\tmov.b64 b, {low, %3};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, one;\n\t"
        "}"
        :
        : "r"(d.value), "r"(a), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)),
          "n"(kCtaGroup), "n"(kA + 0 * kAStep), "n"(kB + 0 * kBStep), "n"(kA + 1 * kAStep), "n"(kB + 1 * kBStep)
        : "memory");
  } else {
    asm volatile(
        "{\n\t.reg .pred p, one;\n\t.reg .b32 low;\n\t.reg .b64 a, b;\n\tsetp.ne.u32 p, %5, 0;\n\tsetp.eq.u32 one, 0, 0;\n\t"
        "add.u32 low, %1, %7;\n\tmov.b64 a, {low, %3};\n\t"
        "add.u32 low, %2, %8;\n\tmov.b64 b, {low, %3};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, p;\n\t"
        "}"
        :
        : "r"(d.value), "r"(a), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)),
          "n"(kCtaGroup), "n"(kA + 0 * kAStep), "n"(kB + 0 * kBStep)
        : "memory");
  }
}

template <int kCtaGroup, int kSteps, int kA, int kAStep, int kB, int kBStep>
__device__ inline void tcgen05_mma_f16_ts(TmemAddr d, TmemAddr a, uint32_t b, uint32_t high, uint32_t idesc, bool accumulate) {
  static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
  if constexpr (kSteps == 4) {
    asm volatile(
        "{\n\t.reg .pred p, one;\n\t.reg .b32 low;\n\t.reg .b64 a, b;\n\tsetp.ne.u32 p, %4, 0;\n\tsetp.eq.u32 one, 0, 0;\n\t"
        "add.u32 low, %1, %8;\n\tmov.b64 b, {low, %2};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], [%5 + %7], b, %3, p;\n\t"
        "add.u32 low, %1, %10;\n\tmov.b64 b, {low, %2};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], [%5 + %9], b, %3, one;\n\t"
        "add.u32 low, %1, %12;\n\tmov.b64 b, {low, %2};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], [%5 + %11], b, %3, one;\n\t"
        "add.u32 low, %1, %14;\n\tmov.b64 b, {low, %2};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], [%5 + %13], b, %3, one;\n\t"
        "}"
        :
        : "r"(d.value), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "r"(a.value),
          "n"(kCtaGroup), "n"(kA + 0 * kAStep), "n"(kB + 0 * kBStep), "n"(kA + 1 * kAStep), "n"(kB + 1 * kBStep), "n"(kA + 2 * kAStep),
          "n"(kB + 2 * kBStep), "n"(kA + 3 * kAStep), "n"(kB + 3 * kBStep)
        : "memory");
  } else if constexpr (kSteps == 2) {
    asm volatile(
        "{\n\t.reg .pred p, one;\n\t.reg .b32 low;\n\t.reg .b64 a, b;\n\tsetp.ne.u32 p, %4, 0;\n\tsetp.eq.u32 one, 0, 0;\n\t"
        "add.u32 low, %1, %8;\n\tmov.b64 b, {low, %2};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], [%5 + %7], b, %3, p;\n\t"
        "add.u32 low, %1, %10;\n\tmov.b64 b, {low, %2};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], [%5 + %9], b, %3, one;\n\t"
        "}"
        :
        : "r"(d.value), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "r"(a.value),
          "n"(kCtaGroup), "n"(kA + 0 * kAStep), "n"(kB + 0 * kBStep), "n"(kA + 1 * kAStep), "n"(kB + 1 * kBStep)
        : "memory");
  } else {
    asm volatile(
        "{\n\t.reg .pred p, one;\n\t.reg .b32 low;\n\t.reg .b64 a, b;\n\tsetp.ne.u32 p, %4, 0;\n\tsetp.eq.u32 one, 0, 0;\n\t"
        "add.u32 low, %1, %8;\n\tmov.b64 b, {low, %2};\n\t"
        "tcgen05.mma.cta_group::%6.kind::f16 [%0], [%5 + %7], b, %3, p;\n\t"
        "}"
        :
        : "r"(d.value), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "r"(a.value),
          "n"(kCtaGroup), "n"(kA + 0 * kAStep), "n"(kB + 0 * kBStep)
        : "memory");
  }
}

}  // namespace fa4::ptx
