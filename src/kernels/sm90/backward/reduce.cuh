// The reducing warps: each part of dQ from shared memory into the sums in the workspace, by the
// copy engine.
#pragma once

#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/global.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/backward/clear.cuh"

namespace fa4::sm90::bwd {

// One thread of a warp. The warps take the steps in turn, so that one adds while another one waits
// for its turn.
template <BwdTraits T>
class Reducer {
 public:
  __device__ Reducer(const Context<T>& context, int warp) : c(context), warp(warp) {}

  __device__ void run() {
    WorkReader<T> works(c);
#pragma unroll 1
    for (;;) {
      const Work& work = works.wait();
      if (work.steps < 0) return;
      const bool has_dq = work.part != Part::kDv && c.params.workspace.dq != nullptr;
      if (work.steps > 0 && has_dq) {
        wait_for_zeros<T>(c.params, work.section);
        visit(work);
      }
      works.release(true);
    }
  }

 private:
  static constexpr int kBlocks = q_blocks(T), kBlockParts = dq_parts_of_block(T);
  static constexpr int kParts = dq_parts(T);
  // Whether all parts of a step have a place: when a turn comes that was waited for they are there,
  // and none need wait until the one before it has been read.
  static constexpr bool kHoldsStep = kParts <= T.dq_stages;

  __device__ void visit(const Work& w) {
    const BwdWorkspace& workspace = c.params.workspace;
    int64_t block = first_query_block(c.params, w.sequence, w.head * c.params.group) +
                    w.rows.n_block_min * kBlocks;
    const int64_t skipped = head_blocks(c.params) - w.blocks() * kBlocks;
    const int blocks = num_query_blocks(w.sequence.seqlen_q);
    int m = w.rows.n_block_min;
#pragma unroll 1
    for (const uint32_t end = step + w.steps; step != end; ++step) {
      if (step % kReduceWarps == warp) {
        uint32_t* turn = workspace.turns == nullptr ? nullptr : workspace.turns + block;
        // Deterministic: until the CTAs before this one have added to block m.
        const uint32_t before = turn == nullptr ? 0 : rank(w, m);
        if (before > 0) wait_for_count(turn, before);
        const bool is_first = turn != nullptr && before == 0;
        DqState<T> dq{step * kParts};
#pragma unroll 1
        for (int part = 0; part < kParts; ++part, dq.advance()) {
          c.pipeline(kDqFull).consumer_wait(dq);
          ptx::fence_proxy_async_shared();  // ordinary stores wrote it
          // Of the last step's blocks the second may lie past the sequence.
          if (kBlocks == 1 || m * kBlocks + part / kBlockParts < blocks) {
            add(workspace.dq + (block * kBlockParts + part) * (dq_bytes(T) / 4), dq.place(),
                is_first);
          }
          ptx::cp_async_bulk_commit_group();
          if (!kHoldsStep || turn == nullptr) release<1>(dq);
        }
        if (turn != nullptr) {
          if (kHoldsStep) release<kParts>({step * kParts});
          give(turn, min(blocks - m * kBlocks, kBlocks));
        }
      }
      block += kBlocks;
      if (++m < w.rows.n_block_max) continue;
      m = w.rows.n_block_min;
      block += skipped;
    }
  }

  // The first in turn finds no zeros: its part becomes the sum.
  __device__ void add(float* to, int from, bool is_first) const {
    if (is_first) {
      ptx::cp_async_bulk_store(to, c.smem_address(from), dq_bytes(T));
    } else {
      ptx::cp_reduce_async_bulk_add_f32(to, c.smem_address(from), dq_bytes(T));
    }
  }

  // `kCount` parts from `dq` on, when the copy engine has read them.
  template <int kCount>
  __device__ void release(DqState<T> dq) const {
    ptx::cp_async_bulk_wait_group_read<0>();
#pragma unroll
    for (int i = 0; i < kCount; ++i, dq.advance()) c.pipeline(kDqFull).consumer_release(dq);
  }

  // Of the CTAs that visit block m, how many add before this one.
  __device__ uint32_t rank(const Work& w, int m) const {
    return turn_of(c.params, w.sequence, w.n_block, m, kKeys, T.q_rows);
  }

  // At once when the sums are there: the next CTA is two steps behind this one or fewer. The other
  // reducing warp has the next step meanwhile. What a bulk operation wrote is visible to the thread
  // that waited for its completion without a proxy fence (PTX ISA, "Async proxy"). `count`: of the
  // step's blocks, how many the sequence has.
  __device__ static void give(uint32_t* turns, int count) {
    ptx::cp_async_bulk_wait_group<0>();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (i < count) ptx::red_release_gpu_add(turns + i, 1);
    }
  }

  const Context<T>& c;
  const uint32_t warp;  // of the reducing ones
  uint32_t step = 0;    // of all works
};

}  // namespace fa4::sm90::bwd
