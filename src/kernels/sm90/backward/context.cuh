// What every role of the Hopper backward kernel shares: addresses, barriers, which keys a CTA has
// and which query blocks it visits.
#pragma once

#include "kernels/backward/sequence.cuh"
#include "kernels/sm90/backward/traits.h"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm90::bwd {

// A CTA's block of keys of one head, and the query blocks that see it: for each query head of the
// group `rows.n_block_min` up to `rows.n_block_max`.
struct Work {
  Part part;
  Sequence sequence;
  int head;  // of k and v
  int n_block;
  BlockRange rows;
  int steps;  // of all heads of the group; -1: the sequence has no such block of keys

  __device__ int first_key() const { return n_block * kKeys; }
  __device__ int blocks() const { return rows.n_block_max - rows.n_block_min; }
};

// By one thread. Deterministic: CTAs take their work in the order in which they begin, so that who
// waits for a turn waits for CTAs that have begun.
template <BwdTraits T>
__device__ inline Work find_work(const BwdParams& p) {
  uint32_t index = p.workspace.ticket == nullptr ? blockIdx.x : atomicAdd(p.workspace.ticket, 1u);
  Part part = Part::kAll;
  if constexpr (T.split) {
    part = index % 2 == 0 ? Part::kDkAndDq : Part::kDv;  // the longer first
    index /= 2;
  }
  const int blocks = (p.sequences.seqlen_k + kKeys - 1) / kKeys;
  const HeadAndBlock at = section_order(
      index, static_cast<uint32_t>(p.heads_kv * p.sequences.batch), static_cast<uint32_t>(blocks),
      static_cast<uint32_t>(p.sections), p.last_keys_first != 0);
  const int batch = at.head / p.heads_kv;
  Work work{.part = part,
            .sequence = sequence_of(p, batch),
            .head = at.head - batch * p.heads_kv,
            .n_block = at.block,
            .rows = {},
            .steps = -1};
  const Sequence& s = work.sequence;
  const int first = work.first_key();
  if (first >= s.seqlen_k) return work;
  work.rows = rows_of_keys(p.mask, s, first, first + kKeys, T.q_rows);
  work.steps = p.group * work.blocks();
  return work;
}

// Named barriers: 0 is __syncthreads.
enum NamedBarrier { kStore = 1 };  // kStore: + math warpgroup

// Everything a role needs. What it reads of the work seldom stays in shared memory: registers are
// scarce.
template <BwdTraits T>
struct Context {
  static constexpr SmemLayout kSmem = smem_layout(T);
  static constexpr auto kBarriers = places_of(barriers(T));

  const BwdParams& params;
  unsigned char* smem;

  __device__ Work& work() const { return *reinterpret_cast<Work*>(smem + kSmem.work); }
  __device__ ptx::SmemAddr smem_address(int offset) const { return ptx::smem_addr(smem) + offset; }
  __device__ ptx::SmemAddr barrier(int kind, int stage = 0) const {
    return smem_address(kSmem.barriers + 8 * (kBarriers.first[kind] + stage));
  }
  __device__ Pipeline pipeline(int full_kind) const {
    return {barrier(full_kind), barrier(full_kind + 1)};
  }
};

static_assert(sizeof(Work) == kWorkBytes);

// The rings of Q and dO go round together.
template <BwdTraits T>
using RingState = PipelineState<T.stages>;
template <BwdTraits T>
using DsState = PipelineState<T.ds_stages>;
// Parts of dq: whose barriers are next, and the stage.
template <BwdTraits T>
struct DqState : PipelineState<dq_barriers(T)> {
  __device__ int place() const {
    return Context<T>::kSmem.dq + static_cast<int>(this->count % T.dq_stages) * dq_bytes(T);
  }
};

}  // namespace fa4::sm90::bwd
