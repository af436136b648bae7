// The end of a work, once for both kinds: a math warpgroup's dk and dv to another subgroup of the
// group, or to global memory.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/wgmma_backward.cuh"
#include "kernels/sm90/backward/held_sums.cuh"
#include "kernels/sm90/backward/store.cuh"

namespace fa4::sm90::bwd {

// The end of a work that has had steps. The gradients leave through V's place, or in a work for dv,
// whose Q and dO may lie in V's, through K's.
template <BwdTraits T>
struct WorkEnd {
  const Context<T>& c;
  const WorkOf<T>& work;
  int warpgroup;
  KState<T> k;
  VState v;

  __device__ void run(HeldSums<T>& held) const {
    const bool of_dv = T.split && work_kind_of(work) == WorkKind::kDv;
    if (of_dv) c.pipeline(kVFull).consumer_wait(v);  // taken before it is given back
    give_back(!of_dv);
    ptx::fence_registers(held.x);
    ptx::barrier_sync(kStore + warpgroup, kWarpgroupThreads);
    if (has_all_subgroups(held, of_dv)) store(held, of_dv);
    ptx::fence_proxy_async_shared();
    __syncwarp();
    give_back(of_dv);
  }

 private:
  // K's place, or V's.
  __device__ void give_back(bool keys) const {
    if (ptx::mov_tid_x() % 32 != 0) return;
    if (keys) {
      c.pipeline(kKFull).consumer_release(k);
    } else {
      c.pipeline(kVFull).consumer_release(v);
    }
  }

  // Whether this work's dk and dv are to be stored.
  __device__ bool has_all_subgroups(HeldSums<T>& held, bool of_dv) const {
    if (c.params.workspace.subgroup_sums == nullptr) return true;
    const int warp = ptx::mov_tid_x() % kWarpgroupThreads / 32;
    const WarpSums<T> sums{held, 4 * warpgroup + warp, of_dv};
    return SubgroupSums(c.params, work.sequence, work.head, work.first_key(), sums.unit())
        .collect(sums);
  }

  __device__ void store(HeldSums<T>& held, bool of_dv) const {
    const BwdGradients& gradients = c.params.gradients;
    const int lane = ptx::mov_tid_x() % kWarpgroupThreads;
    const int keys = c.kSmem.k + k.stage() * k_bytes(T);
    const GradientStore<T> to{c, work, warpgroup, lane, of_dv ? keys : c.kSmem.v};
    if (!of_dv) {
#pragma unroll
      for (float& x : held.dk()) x *= c.params.scale;
    }
    if constexpr (T.split) {
      to.store(held.x, of_dv ? gradients.dv : gradients.dk);
    } else {
      to.store(held.dv(), gradients.dv);
      to.store(held.dk(), gradients.dk);
    }
  }
};

}  // namespace fa4::sm90::bwd
