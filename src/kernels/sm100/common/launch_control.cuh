// Cluster launch control: a CTA that runs takes the work of one that has not started.
#pragma once

#include "kernels/ptx/launch_control.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm100 {

class LaunchControl {
 public:
  static constexpr int kResponseBytes = 16;  // what the instruction writes

  // All lanes of one warp call it. Returns blockIdx.x of the CTA that was cancelled, or -1 when all
  // have started. `response` is kResponseBytes of shared memory, `barrier` takes one arrival and
  // those bytes.
  __device__ int32_t next(ptx::SmemAddr response, ptx::SmemAddr barrier) {
    if (ptx::elect_sync()) {
      ptx::fence_proxy_async_shared();  // the last response was read
      ptx::mbarrier_arrive_expect_tx(barrier, kResponseBytes);
      ptx::clusterlaunchcontrol_try_cancel(response, barrier);
    }
    __syncwarp();
    wait(barrier, phase_);
    phase_ ^= 1;
    const int32_t index = ptx::clusterlaunchcontrol_first_ctaid_x(response);
    __syncwarp();
    return index;
  }

 private:
  uint32_t phase_ = 0;
};

}  // namespace fa4::sm100
