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

// tcgen05.mma.cta_group.kind::f16 [tmem + kD], a-desc, b-desc, idesc, enable-input-d;
// d = A B + (accumulate ? d : 0), both operands in shared memory
// PTX ISA, "tcgen05.mma", sm_100a
template <int kCtaGroup, int kD>
__device__ inline void tcgen05_mma_f16_ss(TmemAddr tmem, uint64_t a, uint64_t b, uint32_t idesc,
                                          bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.u32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::%5.kind::f16 [%0 + %6], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem.value),
      "l"(a), "l"(b), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "n"(kCtaGroup), "n"(kD)
      : "memory");
}

// tcgen05.mma.cta_group.kind::f16 [tmem + kD], [tmem + kA], b-desc, idesc, enable-input-d;  A in
// tensor memory, two elements a column
// PTX ISA, "tcgen05.mma", sm_100a
template <int kCtaGroup, int kD, int kA>
__device__ inline void tcgen05_mma_f16_ts(TmemAddr tmem, uint64_t b, uint32_t idesc,
                                          bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.u32 p, %3, 0;\n\t"
      "tcgen05.mma.cta_group::%4.kind::f16 [%0 + %5], [%0 + %6], %1, %2, p;\n\t"
      "}" ::"r"(tmem.value),
      "l"(b), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "n"(kCtaGroup), "n"(kD), "n"(kA)
      : "memory");
}

// tcgen05.ld.sync.aligned.32x32b.xN.b32 r, [taddr + kColumn];  nothing is in r before wait::ld
// PTX ISA, "tcgen05.ld", sm_100a
//
// tcgen05.st.sync.aligned.32x32b.xN.b32 [taddr + kColumn], r;
// PTX ISA, "tcgen05.st", sm_100a
//
// clang-format off
template <int kColumn>
__device__ inline void tcgen05_ld_32x32b(float (&r)[16], TmemAddr from) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, [%16 + %17];"
      : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]), "=f"(r[4]), "=f"(r[5]), "=f"(r[6]),
        "=f"(r[7]), "=f"(r[8]), "=f"(r[9]), "=f"(r[10]), "=f"(r[11]), "=f"(r[12]), "=f"(r[13]),
        "=f"(r[14]), "=f"(r[15])
      : "r"(from.value), "n"(kColumn)
      : "memory");
}

template <int kColumn>
__device__ inline void tcgen05_ld_32x32b(float (&r)[32], TmemAddr from) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, [%32 + %33];"
      : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]), "=f"(r[4]), "=f"(r[5]), "=f"(r[6]),
        "=f"(r[7]), "=f"(r[8]), "=f"(r[9]), "=f"(r[10]), "=f"(r[11]), "=f"(r[12]), "=f"(r[13]),
        "=f"(r[14]), "=f"(r[15]), "=f"(r[16]), "=f"(r[17]), "=f"(r[18]), "=f"(r[19]), "=f"(r[20]),
        "=f"(r[21]), "=f"(r[22]), "=f"(r[23]), "=f"(r[24]), "=f"(r[25]), "=f"(r[26]), "=f"(r[27]),
        "=f"(r[28]), "=f"(r[29]), "=f"(r[30]), "=f"(r[31])
      : "r"(from.value), "n"(kColumn)
      : "memory");
}

// tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 r, redval, [taddr + kColumn];  redval is the
// largest of r, NaN if one is
// PTX ISA, "tcgen05.ld", sm_103a
template <int kColumn>
__device__ inline void tcgen05_ld_max_32x32b(float (&r)[32], float& top, TmemAddr from) {
  asm volatile(
      "tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, [%33 + %34];"
      : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]), "=f"(r[4]), "=f"(r[5]), "=f"(r[6]),
        "=f"(r[7]), "=f"(r[8]), "=f"(r[9]), "=f"(r[10]), "=f"(r[11]), "=f"(r[12]), "=f"(r[13]),
        "=f"(r[14]), "=f"(r[15]), "=f"(r[16]), "=f"(r[17]), "=f"(r[18]), "=f"(r[19]), "=f"(r[20]),
        "=f"(r[21]), "=f"(r[22]), "=f"(r[23]), "=f"(r[24]), "=f"(r[25]), "=f"(r[26]), "=f"(r[27]),
        "=f"(r[28]), "=f"(r[29]), "=f"(r[30]), "=f"(r[31]), "=f"(top)
      : "r"(from.value), "n"(kColumn)
      : "memory");
}

template <int kColumn>
__device__ inline void tcgen05_st_32x32b(TmemAddr to, const uint32_t (&r)[16]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0 + %17], {"
      "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16"
      "};"
      :: "r"(to.value),
         "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7]),
         "r"(r[8]), "r"(r[9]), "r"(r[10]), "r"(r[11]), "r"(r[12]), "r"(r[13]), "r"(r[14]),
         "r"(r[15]), "n"(kColumn)
      : "memory");
}

template <int kColumn>
__device__ inline void tcgen05_st_32x32b(TmemAddr to, const float (&r)[16]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0 + %17], {"
      "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16"
      "};"
      :: "r"(to.value),
         "f"(r[0]), "f"(r[1]), "f"(r[2]), "f"(r[3]), "f"(r[4]), "f"(r[5]), "f"(r[6]), "f"(r[7]),
         "f"(r[8]), "f"(r[9]), "f"(r[10]), "f"(r[11]), "f"(r[12]), "f"(r[13]), "f"(r[14]),
         "f"(r[15]), "n"(kColumn)
      : "memory");
}
// clang-format on

// Whether a load gives the largest of its registers (sm_103a).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1030
inline constexpr bool kHasLoadMax = true;
#else
inline constexpr bool kHasLoadMax = false;
#endif

// No instruction: the registers of a load are read after the wait before this point, not earlier.
template <int kCount>
__device__ inline void fence_loaded(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

}  // namespace fa4::ptx
