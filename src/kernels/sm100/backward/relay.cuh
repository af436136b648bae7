// The relay warp of a pair: says where the MMA thread waits that the other CTA's dS has arrived.
#pragma once

#include "kernels/sm100/backward/context.cuh"

namespace fa4::sm100::bwd {

// The other CTA's stores are of the generic proxy, the products that read them of the async one:
// who sees their barrier complete puts the fence between the two.
template <BwdTraits T, WorkKind kKind>
__device__ inline void relay(const Context<T, kKind>& c) {
  PhasesOf<T, kDsPeer> phases;
#pragma unroll 1
  for (int i = c.work().steps; i > 0; --i) {
    if (ptx::elect_sync()) {
      ptx::mbarrier_arrive_expect_tx(c.barrier(kDsPeer), ds_peer_bytes(T));
    }
    __syncwarp();
    phases.wait(c, kDsPeer);
    ptx::fence_proxy_async_shared();
    c.release_to_mma(kDsRelayed);
  }
}

}  // namespace fa4::sm100::bwd
