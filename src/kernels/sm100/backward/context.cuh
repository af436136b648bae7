// What every role of the Blackwell backward kernel shares: addresses, barriers, which keys a CTA
// has and which blocks of queries it visits.
#pragma once

#include "kernels/backward/sequence.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm100/backward/layout.h"
#include "kernels/sm100/common/cta_group.cuh"
#include "kernels/tile/phases.h"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm100::bwd {

// A CTA's block of keys of one head, and its visits to blocks of queries: for each query head of
// the group `rows.n_block_min` up to `rows.n_block_max` (block_of_visit). The CTAs of a pair visit
// the same ones.
struct Work {
  WorkKind kind;
  Sequence sequence;
  int head;  // of k and v, or a subgroup (BwdParams::heads_kv)
  int first_key;
  BlockRange rows;   // visits; in [full_begin, full_end) all rows see all keys of this CTA
  int steps;         // of all heads of the group; -1: the sequence has no such block of keys
  float scale_log2;  // of the scores, which softcap leaves in its units
};
static_assert(sizeof(Work) <= kWorkBytes);

template <BwdTraits T>
__device__ inline Work find_work(const BwdParams& p, uint32_t rank, uint32_t index) {
  constexpr int kGroupKeys = group_keys(T), kRows = block_rows(T);
  WorkKind kind = WorkKind::kAll;
  if constexpr (T.split) kind = take_work_kind(index);
  const int blocks = (p.sequences.seqlen_k + kGroupKeys - 1) / kGroupKeys;
  const BlockOfKeys at =
      block_of_keys(p.order, index, p.sequences.batch, p.heads_kv, static_cast<uint32_t>(blocks));
  const int first = at.block * kGroupKeys;
  Work work{.kind = kind,
            .sequence = sequence_of(p.sequences, at.batch),
            .head = at.head,
            .first_key = first + static_cast<int>(rank) * kKeys,
            .rows = {},
            .steps = -1,
            .scale_log2 = p.scores.scale_log2};
  const Sequence& s = work.sequence;
  if (first >= s.seqlen_k) return work;
  work.rows = rows_of_keys(p.mask, s, first, first + kGroupKeys, kRows);
  if constexpr (T.cta_group > 1) {
    const BlockRange own = rows_of_keys(p.mask, s, work.first_key, work.first_key + kKeys, kRows);
    work.rows.full_begin = own.full_begin;
    work.rows.full_end = own.full_end;
  }
  work.rows = in_order_of_visits(work.rows, goes_down(p.order, at.head, p.heads_kv));
  work.steps = p.group * (work.rows.n_block_max - work.rows.n_block_min);
  return work;
}

// The steps of a CTA, one after the other: every visit to a block of queries of every head of the
// group.
struct Steps {
  int head;  // of q
  int visit;
  int left;

  __device__ Steps(const Work& work, int group)
      : head(work.head * group), visit(work.rows.n_block_min), left(work.steps) {}
  __device__ bool is_done() const { return left == 0; }
  __device__ int m_block() const { return block_of_visit(visit); }
  // Some of the CTA's keys do not see all of the block.
  __device__ bool is_masked(const Work& work) const {
    return visit < work.rows.full_begin || visit >= work.rows.full_end;
  }
  __device__ void advance(const Work& work) {
    --left;
    if (++visit == work.rows.n_block_max) {
      visit = work.rows.n_block_min;
      ++head;
    }
  }
};

// Everything a role needs of a work that computes `kKind`.
template <BwdTraits T, WorkKind kKind>
struct Context {
  // As constants: the compiler would inline what computes them wherever it is called.
  static constexpr SmemLayout kSmem = smem_layout(T, kKind);
  static constexpr TmemLayout kTmem = tmem_layout(T);
  static constexpr auto kBarriers = offsets_of(barriers(T));

  const BwdParams& params;
  unsigned char* smem;
  CtaGroup<T.cta_group> group;

  __device__ uint32_t ticket() const { return *reinterpret_cast<uint32_t*>(smem + kSmem.tmem + 4); }
  __device__ Work& work() const { return *reinterpret_cast<Work*>(smem + kSmem.work); }
  __device__ ptx::SmemAddr smem_address(int offset) const { return ptx::smem_addr(smem) + offset; }
  __device__ ptx::SmemAddr barrier(int kind, int stage = 0) const {
    return smem_address(kSmem.barriers + 8 * (kBarriers.first[kind] + stage));
  }
  __device__ void wait(int kind, int stage, uint32_t parity) const {
    group.wait(barrier(kind, stage), parity);
  }
  // All lanes of a warp call these, which arrive once for all of them: at this CTA's barrier, or
  // where the MMA thread waits, because of tensor memory or of shared memory too.
  __device__ void arrive(int kind, int stage = 0) const {
    __syncwarp();
    if (ptx::elect_sync()) ptx::mbarrier_arrive(barrier(kind, stage));
  }
  __device__ void arrive_at_mma(int kind) const {
    __syncwarp();
    if (ptx::elect_sync()) group.arrive_at_leader(barrier(kind));
  }
  __device__ void release_to_mma(int kind) const {
    __syncwarp();
    if (ptx::elect_sync()) group.release_to_leader(barrier(kind));
  }
};

// The phases of a role that waits at the one barrier of each of these kinds.
template <BwdTraits T, int... kKinds>
using PhasesOf = Phases<barriers(T).start_free(), kOneStage, kKinds...>;

// Lanes of tensor memory that this warp may touch.
__device__ inline uint32_t first_lane() {
  return __shfl_sync(0xffffffffu, threadIdx.x / kWarpThreads % 4, 0) * kWarpThreads << 16;
}

}  // namespace fa4::sm100::bwd
