// Cluster launch control: a running CTA takes over one that has not started (Blackwell).
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4::ptx {

// clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [addr],
// [mbar];  16 bytes to addr, counted by the barrier; never again after a refusal
// PTX ISA, "clusterlaunchcontrol.try_cancel", sm_100
__device__ inline void clusterlaunchcontrol_try_cancel(SmemAddr response, SmemAddr barrier) {
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], "
      "[%1];" ::"r"(response.value),
      "r"(barrier.value)
      : "memory");
}

// clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, response;
// clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 d, response;  -1: nothing was left
// PTX ISA, "clusterlaunchcontrol.query_cancel", sm_100
__device__ inline int32_t clusterlaunchcontrol_first_ctaid_x(SmemAddr response) {
  int32_t x;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      ".reg .b128 r;\n\t"
      "ld.shared::cta.b128 r, [%1];\n\t"
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;\n\t"
      "mov.b32 %0, -1;\n\t"
      "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, r;\n\t"
      "}"
      : "=r"(x)
      : "r"(response.value)
      : "memory");
  return x;
}

}  // namespace fa4::ptx
