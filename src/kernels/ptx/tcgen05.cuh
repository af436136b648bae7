// Tensor memory and the fifth-generation tensor core (Blackwell).
//
// Thread t of a warp holds in register r of a 32x32b access the 32-bit cell of lane 32 (warp % 4) +
// t and column r (PTX ISA, "tcgen05 data movement shape .32x32b").
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

// tcgen05.alloc.cta_group.sync.aligned.shared::cta.b32 [dst], nCols;
// PTX ISA, "tcgen05.alloc", sm_100a
template <int kCtaGroup>
__device__ inline void tcgen05_alloc(SmemAddr address_to, uint32_t columns) {
  asm volatile(
      "tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address_to.value),
      "r"(columns), "n"(kCtaGroup)
      : "memory");
}

// tcgen05.relinquish_alloc_permit.cta_group.sync.aligned;
// PTX ISA, "tcgen05.relinquish_alloc_permit", sm_100a
template <int kCtaGroup>
__device__ inline void tcgen05_relinquish_alloc_permit() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(kCtaGroup));
}

// tcgen05.dealloc.cta_group.sync.aligned.b32 taddr, nCols;
// PTX ISA, "tcgen05.dealloc", sm_100a
template <int kCtaGroup>
__device__ inline void tcgen05_dealloc(TmemAddr address, uint32_t columns) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address.value),
               "r"(columns), "n"(kCtaGroup)
               : "memory");
}

// tcgen05.fence::before_thread_sync;  asynchronous accesses before, thread synchronisation after
// PTX ISA, "tcgen05.fence", sm_100a
__device__ inline void tcgen05_fence_before_thread_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// tcgen05.fence::after_thread_sync;  thread synchronisation before, asynchronous accesses after
// PTX ISA, "tcgen05.fence", sm_100a
__device__ inline void tcgen05_fence_after_thread_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// tcgen05.wait::ld.sync.aligned;  until this thread's loads have completed
// PTX ISA, "tcgen05.wait", sm_100a
__device__ inline void tcgen05_wait_ld() {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// tcgen05.wait::st.sync.aligned;  until this thread's stores have completed
// PTX ISA, "tcgen05.wait", sm_100a
__device__ inline void tcgen05_wait_st() {
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

// tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [mbar];  one arrival when
// all this thread's products so far have completed
// PTX ISA, "tcgen05.commit", sm_100a
__device__ inline void tcgen05_commit(SmemAddr barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   barrier.value)
               : "memory");
}

// tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [mbar],
// ctaMask;  at the barrier's offset in every CTA of the mask
// PTX ISA, "tcgen05.commit", sm_100a
__device__ inline void tcgen05_commit_multicast(SmemAddr barrier, uint16_t ctas) {
  asm volatile(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
      "[%0], %1;" ::"r"(barrier.value),
      "h"(ctas)
      : "memory");
}

// tcgen05.mma.cta_group.kind::f16 [d], a-desc, b-desc, idesc, enable-input-d;
// tcgen05.mma.cta_group.kind::f16 [d], [a], b-desc, idesc, enable-input-d;
// d = A B + (accumulate ? d : 0); A in shared memory, or in tensor memory, two elements a column
// PTX ISA, "tcgen05.mma", sm_100a
//
// kSteps products of 16 in one statement: one for each, with its descriptors, cost the compiler
// more than all else that the thread does. A descriptor's low word is a + kA + step kAStep (of A in
// tensor memory that is its column); the high one is the same for all.
//
// clang-format off
#define FA4_MMA_BEGIN(ACCUMULATE)                                                        \
  "{\n\t.reg .pred p, one;\n\t.reg .b32 low;\n\t.reg .b64 a, b;\n\t"                     \
  "setp.ne.u32 p, %" #ACCUMULATE ", 0;\n\tsetp.eq.u32 one, 0, 0;\n\t"
#define FA4_MMA_SS(A, B, ADD)                                                            \
  "add.u32 low, %1, %" #A ";\n\tmov.b64 a, {low, %3};\n\t"                               \
  "add.u32 low, %2, %" #B ";\n\tmov.b64 b, {low, %3};\n\t"                               \
  "tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, " ADD ";\n\t"
#define FA4_MMA_TS(A, B, ADD)                                                            \
  "add.u32 low, %1, %" #B ";\n\tmov.b64 b, {low, %2};\n\t"                               \
  "tcgen05.mma.cta_group::%6.kind::f16 [%0], [%5 + %" #A "], b, %3, " ADD ";\n\t"
#define FA4_MMA_AT(step) "n"(kA + step * kAStep), "n"(kB + step * kBStep)

template <int kCtaGroup, int kSteps, int kA, int kAStep, int kB, int kBStep>
__device__ inline void tcgen05_mma_f16_ss(TmemAddr d, uint32_t a, uint32_t b, uint32_t high, uint32_t idesc,
                                          bool accumulate) {
  static_assert(kSteps == 4 || kSteps == 2);
  if constexpr (kSteps == 4) {
    asm volatile(FA4_MMA_BEGIN(5) FA4_MMA_SS(7, 8, "p") FA4_MMA_SS(9, 10, "one")
                 FA4_MMA_SS(11, 12, "one") FA4_MMA_SS(13, 14, "one") "}"
                 :: "r"(d.value), "r"(a), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)),
                    "n"(kCtaGroup), FA4_MMA_AT(0), FA4_MMA_AT(1), FA4_MMA_AT(2), FA4_MMA_AT(3) : "memory");
  } else {
    asm volatile(FA4_MMA_BEGIN(5) FA4_MMA_SS(7, 8, "p") FA4_MMA_SS(9, 10, "one") "}"
                 :: "r"(d.value), "r"(a), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)),
                    "n"(kCtaGroup), FA4_MMA_AT(0), FA4_MMA_AT(1) : "memory");
  }
}

template <int kCtaGroup, int kSteps, int kA, int kAStep, int kB, int kBStep>
__device__ inline void tcgen05_mma_f16_ts(TmemAddr d, TmemAddr a, uint32_t b, uint32_t high, uint32_t idesc, bool accumulate) {
  static_assert(kSteps == 4 || kSteps == 2);
  if constexpr (kSteps == 4) {
    asm volatile(FA4_MMA_BEGIN(4) FA4_MMA_TS(7, 8, "p") FA4_MMA_TS(9, 10, "one")
                 FA4_MMA_TS(11, 12, "one") FA4_MMA_TS(13, 14, "one") "}"
                 :: "r"(d.value), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "r"(a.value),
                    "n"(kCtaGroup), FA4_MMA_AT(0), FA4_MMA_AT(1), FA4_MMA_AT(2), FA4_MMA_AT(3) : "memory");
  } else {
    asm volatile(FA4_MMA_BEGIN(4) FA4_MMA_TS(7, 8, "p") FA4_MMA_TS(9, 10, "one") "}"
                 :: "r"(d.value), "r"(b), "r"(high), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "r"(a.value),
                    "n"(kCtaGroup), FA4_MMA_AT(0), FA4_MMA_AT(1) : "memory");
  }
}
// clang-format on

// tcgen05.ld.sync.aligned.32x32b.xN.b32 r, [taddr + kColumn];  nothing is in r before wait::ld
// tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 r, redval, [taddr];  redval is the largest of
// r, NaN if one is (sm_103a)
// PTX ISA, "tcgen05.ld", sm_100a
//
// tcgen05.st.sync.aligned.32x32b.xN.b32 [taddr + kColumn], r;
// PTX ISA, "tcgen05.st", sm_100a
//
// Loads that are waited for at once have the wait in their statement: behind one of its own, every
// register needs a fence (fence_loaded), and each is a statement to the compiler.
//
// clang-format off
#define FA4_P8(a, b, c, d, e, f, g, h) "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h
#define FA4_P32_0 FA4_P8(0, 1, 2, 3, 4, 5, 6, 7) ", " FA4_P8(8, 9, 10, 11, 12, 13, 14, 15) ", " FA4_P8(16, 17, 18, 19, 20, 21, 22, 23) ", " FA4_P8(24, 25, 26, 27, 28, 29, 30, 31)
#define FA4_P32_1 FA4_P8(32, 33, 34, 35, 36, 37, 38, 39) ", " FA4_P8(40, 41, 42, 43, 44, 45, 46, 47) ", " FA4_P8(48, 49, 50, 51, 52, 53, 54, 55) ", " FA4_P8(56, 57, 58, 59, 60, 61, 62, 63)
#define FA4_P32_2 FA4_P8(64, 65, 66, 67, 68, 69, 70, 71) ", " FA4_P8(72, 73, 74, 75, 76, 77, 78, 79) ", " FA4_P8(80, 81, 82, 83, 84, 85, 86, 87) ", " FA4_P8(88, 89, 90, 91, 92, 93, 94, 95)
#define FA4_P32_3 FA4_P8(96, 97, 98, 99, 100, 101, 102, 103) ", " FA4_P8(104, 105, 106, 107, 108, 109, 110, 111) ", " FA4_P8(112, 113, 114, 115, 116, 117, 118, 119) ", " FA4_P8(120, 121, 122, 123, 124, 125, 126, 127)
#define FA4_R8(bind, r, i) bind (r[i]), bind (r[i + 1]), bind (r[i + 2]), bind (r[i + 3]), bind (r[i + 4]), bind (r[i + 5]), bind (r[i + 6]), bind (r[i + 7])
#define FA4_R16(bind, r) FA4_R8(bind, r, 0), FA4_R8(bind, r, 8)
#define FA4_R32(bind, r) FA4_R16(bind, r), FA4_R8(bind, r, 16), FA4_R8(bind, r, 24)
#define FA4_R4X32(bind, r) FA4_R32(bind, r[0]), FA4_R32(bind, r[1]), FA4_R32(bind, r[2]), FA4_R32(bind, r[3])

template <int kColumn>
__device__ inline void tcgen05_ld_32x32b(float (&r)[16], TmemAddr from) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16 + %17];"
      : FA4_R16("=f", r) : "r"(from.value), "n"(kColumn) : "memory");
}

__device__ inline void tcgen05_ld_and_wait_32x32b(float (&r)[32], TmemAddr from) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {" FA4_P32_0 "}, [%32];\n\t"
      "tcgen05.wait::ld.sync.aligned;"
      : FA4_R32("=f", r) : "r"(from.value) : "memory");
}

__device__ inline void tcgen05_ld_and_wait_32x32b(float (&r)[4][32], TmemAddr from) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {" FA4_P32_0 "}, [%128];\n\t"
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {" FA4_P32_1 "}, [%128 + 32];\n\t"
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {" FA4_P32_2 "}, [%128 + 64];\n\t"
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {" FA4_P32_3 "}, [%128 + 96];\n\t"
      "tcgen05.wait::ld.sync.aligned;"
      : FA4_R4X32("=&f", r) : "r"(from.value) : "memory");
}

__device__ inline void tcgen05_ld_max_and_wait_32x32b(float (&r)[4][32], float (&top)[4], TmemAddr from) {
  asm volatile(
      "tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 {" FA4_P32_0 "}, %128, [%132];\n\t"
      "tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 {" FA4_P32_1 "}, %129, [%132 + 32];\n\t"
      "tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 {" FA4_P32_2 "}, %130, [%132 + 64];\n\t"
      "tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 {" FA4_P32_3 "}, %131, [%132 + 96];\n\t"
      "tcgen05.wait::ld.sync.aligned;"
      : FA4_R4X32("=&f", r), "=&f"(top[0]), "=&f"(top[1]), "=&f"(top[2]), "=&f"(top[3]) : "r"(from.value) : "memory");
}

template <int kColumn>
__device__ inline void tcgen05_st_32x32b(TmemAddr to, const uint32_t (&r)[16]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%16 + %17], {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15};"
      :: FA4_R16("r", r), "r"(to.value), "n"(kColumn) : "memory");
}

template <int kColumn>
__device__ inline void tcgen05_st_32x32b(TmemAddr to, const float (&r)[16]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%16 + %17], {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15};"
      :: FA4_R16("f", r), "r"(to.value), "n"(kColumn) : "memory");
}

// No instruction: the registers of a load are read after the wait before this point, not earlier.
__device__ inline void fence_loaded(float (&r)[16]) {
  asm volatile("" : FA4_R16("+f", r) :: "memory");
}

#undef FA4_MMA_BEGIN
#undef FA4_MMA_SS
#undef FA4_MMA_TS
#undef FA4_MMA_AT
#undef FA4_P8
#undef FA4_P32_0
#undef FA4_P32_1
#undef FA4_P32_2
#undef FA4_P32_3
#undef FA4_R8
#undef FA4_R16
#undef FA4_R32
#undef FA4_R4X32
// clang-format on

// Whether a load gives the largest of its registers (sm_103a).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1030
inline constexpr bool kHasLoadMax = true;
#else
inline constexpr bool kHasLoadMax = false;
#endif

}  // namespace fa4::ptx
