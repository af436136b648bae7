// Named barriers, proxies, register budgets, warp votes.
#pragma once

#include "kernels/base/integers.h"

namespace fa4::ptx {

// barrier.cta.sync.aligned a, b;
// PTX ISA, "barrier", sm_30
__device__ inline void barrier_sync(uint32_t barrier, uint32_t threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// barrier.cta.arrive.aligned a, b;
// PTX ISA, "barrier", sm_30
__device__ inline void barrier_arrive(uint32_t barrier, uint32_t threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// fence.proxy.async.shared::cta;  generic accesses to shared memory before, async ones after
// PTX ISA, "fence.proxy", sm_90
__device__ inline void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// fence.proxy.async;  generic accesses before, async ones after, and the other way round
// PTX ISA, "fence.proxy", sm_90
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

// setmaxnreg.inc.sync.aligned.u32 count;
// PTX ISA, "setmaxnreg", sm_90a
template <int kCount>
__device__ inline void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// setmaxnreg.dec.sync.aligned.u32 count;
// PTX ISA, "setmaxnreg", sm_90a
template <int kCount>
__device__ inline void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// mov.u32 d, %tid.x;  read here: no register keeps what follows from it through a loop before
// PTX ISA, "%tid", sm_10
__device__ inline uint32_t mov_tid_x() {
  uint32_t d;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(d));
  return d;
}

// elect.sync _|p, membermask;  true in exactly one lane of a converged warp
// PTX ISA, "elect.sync", sm_90
__device__ inline bool elect_sync() {
  uint32_t elected;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "elect.sync _|p, 0xffffffff;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(elected));
  return elected != 0;
}

// elect.sync d|p, membermask;  the same, and which lane it is
// PTX ISA, "elect.sync", sm_90
struct Election {
  bool is_elected;
  uint32_t lane;  // 0 to 31
};
__device__ inline Election elect_sync_lane() {
  uint32_t elected, lane;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "elect.sync %1|p, 0xffffffff;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(elected), "=r"(lane));
  return {elected != 0, lane};
}

}  // namespace fa4::ptx
