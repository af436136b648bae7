// The reducing warps: each part of dQ from shared memory into the sums in the workspace, by the
// copy engine.
#pragma once

#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/global.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/backward/finish.cuh"

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
      const auto& work = works.wait();
      if (work.steps < 0) return;
      const bool has_dq = work_kind_of(work) != WorkKind::kDv && c.params.workspace.dq != nullptr;
      if (work.steps > 0 && has_dq) {
        wait_for_zeros<T>(c.params, work);
        visit(work);
      }
      if constexpr (T.finish_stages > 0) count_end(c.params, work);
      works.release(true);
    }
  }

 private:
  static constexpr int kBlocks = q_blocks(T), kBlockParts = dq_parts_of_block(T);
  static constexpr int kParts = dq_parts(T);
  // Whether all parts of a step have a stage: they are computed while the step waits for its turn,
  // and none waits until the part before it has been read.
  static constexpr bool kHoldsStep = kParts <= T.dq_stages;

  __device__ void visit(const Work& w) {
    const BwdWorkspace& workspace = c.params.workspace;
    const int blocks = num_query_blocks(w.sequence.seqlen_q);
    Step at(w);
#pragma unroll 1
    for (const uint32_t end = step + w.steps; step != end; ++step) {
      if (step % kReduceWarps == warp) {
        const int m = at.m_block();
        const int64_t block = w.first_block + at.head * workspace.head_blocks + m * kBlocks;
        const Turn turn = turn_at(w, m, block);
        turn.wait();
        DqState<T> dq{step * kParts};
#pragma unroll 1
        for (int part = 0; part < kParts; ++part, dq.advance()) {
          c.pipeline(kDqFull).consumer_wait(dq);
          ptx::fence_proxy_async_shared();  // ordinary stores wrote it
          // Of the last step's blocks the second may lie past the sequence.
          if (kBlocks == 1 || m * kBlocks + part / kBlockParts < blocks) {
            add(workspace.dq + (block * kBlockParts + part) * (dq_bytes(T) / 4), dq.place(),
                turn.is_first);
          }
          ptx::cp_async_bulk_commit_group();
          if (!kHoldsStep || !turn.is_given) release<1>(dq);
        }
        if (turn.is_given) {
          if (kHoldsStep) release<kParts>({step * kParts});
          turn.give(min(blocks - m * kBlocks, kBlocks));
        }
      }
      at.advance(w, c.params);
    }
  }

  // When a step may be added, and who waits for it.
  struct Turn {
    uint32_t* counts;  // of its blocks
    uint32_t before;   // so many come first
    bool is_first;     // its parts are stored
    bool is_given;     // others wait until they are there

    // Until those before it have added.
    __device__ void wait() const {
      if (before > 0) wait_for_count(counts, before);
    }
    // At once when the sums are there: the next CTA is two steps behind this one or fewer. The
    // other reducing warp has the next step meanwhile. What a bulk operation wrote is visible to
    // the thread that waited for its completion without a proxy fence (PTX ISA, "Async proxy").
    // `count`: of the step's blocks, how many the sequence has.
    __device__ void give(int count) const {
      ptx::cp_async_bulk_wait_group<0>();
      for (int i = 1; i < count; ++i) atomicAdd(counts + i, 1u);  // the postprocess reads it
      ptx::red_release_gpu_add(counts, 1);
    }
  };
  // Deterministic: behind all CTAs before this one, else behind the first alone.
  __device__ Turn turn_at(const Work& w, int m, int64_t block) const {
    uint32_t* counts = c.params.workspace.dq_counts;
    if (counts == nullptr) return {nullptr, 0, false, false};
    const uint32_t rank = turn_of(c.params, w.sequence, w.head, w.n_block, m, kKeys, T.q_rows);
    const bool in_turns = c.params.deterministic != 0;
    return {counts + block, in_turns ? rank : min(rank, 1u), rank == 0, in_turns || rank == 0};
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

  const Context<T>& c;
  const uint32_t warp;  // of the reducing ones
  uint32_t step = 0;    // of all works
};

}  // namespace fa4::sm90::bwd
