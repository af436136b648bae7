// The warpgroup of dq: dQ = dS K of each step, in parts of some columns, each to the stage of
// shared memory from which a reducing warp has it added.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/wgmma_backward.cuh"
#include "kernels/sm90/backward/context.cuh"
#include "kernels/tile/smem_descriptor.cuh"

namespace fa4::sm90::bwd {

template <BwdTraits T>
class DqProduct {
 public:
  __device__ explicit DqProduct(const Context<T>& context)
      : c(context),
        warp(__shfl_sync(0xffffffffu, threadIdx.x % kWarpgroupThreads / 32, 0)),
        lane(threadIdx.x % 32) {}

  __device__ void run() {
    WorkReader<T> works(c);
#pragma unroll 1
    for (;;) {
      const auto& work = works.wait();
      if (work.steps < 0) return;
      const Pipeline keys = c.pipeline(kKFull);
      keys.consumer_wait(works.k());
      if (work_kind_of(work) != WorkKind::kDv) {
        visit(ds.count + work.steps * q_blocks(T), c.kSmem.k + works.k().stage() * k_bytes(T));
      }
      if (lane == 0) keys.consumer_release(works.k());
      __syncwarp();
      works.release(lane == 0);
    }
  }

 private:
  // Blocks of dS up to the `end`th; `k`: where K lies.
  __device__ void visit(uint32_t end, int k) {
    const int parts = c.params.workspace.dq == nullptr ? 0 : kParts;  // 0: dq is not wanted
#pragma unroll 1
    for (; ds.count != end; ds.advance()) {
      c.pipeline(kDsFull).consumer_wait(ds);
      ptx::fence_proxy_async_shared();  // ordinary stores wrote it
#pragma unroll 1
      for (int part = 0; part < parts; part += kAtOnce) {
        multiply(part, k);
        if (part == kParts - kAtOnce) release();
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) stage(i);
      }
      if (parts == 0) release();
    }
  }

  static constexpr int kAtOnce = dq_parts_at_once(T);
  using Wgmma = ptx::WgmmaRowsStep<kAtOnce * dq_columns(T), T.element>;
  using DsDescriptor = WgmmaDescriptor<kQueryRows>;
  using KDescriptor = WgmmaDescriptor<slab_columns(T.head_dim)>;
  static constexpr int kColumns = dq_columns(T), kParts = dq_parts_of_block(T);
  static constexpr int kMmaK = 16;

  // Columns of kAtOnce parts from `part` on: both operands' contracted dimension, the keys, runs
  // over rows.
  __device__ void multiply(int part, int k) {
    constexpr int kSlabBytes = kKeys * KDescriptor::kRowBytes;
    const uint32_t ds_lo =
        DsDescriptor::mn_major(c.smem_address(c.kSmem.ds + ds.stage() * kDsBytes), kDsBytes);
    const uint32_t k_lo = KDescriptor::mn_major(c.smem_address(k), kSlabBytes);
    const int first = part * kColumns / slab_columns(T.head_dim) * kSlabBytes;
    constexpr int kStepA = kMmaK * DsDescriptor::kRowBytes, kStepB = kMmaK * KDescriptor::kRowBytes;
    ptx::wgmma_fence();
    Wgmma::template start<kStepA, kStepB>(rDQ, DsDescriptor::descriptor_at(ds_lo),
                                          KDescriptor::descriptor_at(k_lo, first));
#pragma unroll
    for (int i = 4; i < kKeys / kMmaK; i += 4) {
      Wgmma::template run<kStepA, kStepB>(rDQ, DsDescriptor::descriptor_at(ds_lo, i * kStepA),
                                          KDescriptor::descriptor_at(k_lo, first + i * kStepB));
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rDQ);
  }

  __device__ void release() const {
    if (lane == 0) c.pipeline(kDsFull).consumer_release(ds);
  }

  // Stages the part-th part of the product: each warp its 16 rows, as its accumulators lie, 512
  // bytes side by side at a time.
  __device__ void stage(int part) {
    if (dq.count >= T.dq_stages) {  // until the part that was there has been read
      const DqState<T> last{dq.count - T.dq_stages};
      wait(c.barrier(kDqEmpty, last.stage()), last.phase());
    }
    auto* to = reinterpret_cast<float4*>(c.smem + dq.place() + warp * (dq_bytes(T) / 4)) + lane;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const int e = part * kColumns / 2 + 4 * j;
      to[32 * j] = {rDQ[e], rDQ[e + 1], rDQ[e + 2], rDQ[e + 3]};
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(c.barrier(kDqFull, dq.stage()));
    dq.advance();
  }

  const Context<T>& c;
  const int warp;  // in the warpgroup
  const int lane;  // in the warp
  DsState<T> ds;
  DqState<T> dq;
  float rDQ[kAtOnce * kColumns / 2];
};

}  // namespace fa4::sm90::bwd
