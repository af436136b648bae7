// What every role of the Hopper backward kernel shares: addresses, barriers, which keys a CTA has
// and which query blocks it visits.
#pragma once

#include "kernels/backward/sequence.cuh"
#include "kernels/base/choice.h"
#include "kernels/sm90/backward/traits.h"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm90::bwd {

// A CTA's block of keys of one head, and the visits to query blocks that see it: for each query
// head of the group `rows.n_block_min` up to `rows.n_block_max` (block_of_visit).
struct Work {
  Sequence sequence;
  int head;     // of k and v, or a subgroup (BwdParams::heads_kv)
  int kv_head;  // of k and v
  int n_block;
  BlockRange rows;
  int steps;              // of all heads of the group; -1: there are no such keys
  int first_block;        // in the workspace, of the first head's queries; below 2^31
  uint32_t steps_before;  // of the CTA's works of this kind before this one
  uint32_t index;         // of all blocks of keys
  uint32_t number;        // of the CTA's works before this one

  __device__ int first_key() const { return n_block * kKeys; }
  __device__ int subgroup_of_work(const BwdParams& p) const { return head - kv_head * p.subgroups; }
};
// What a work carries besides, where works say what they compute (works_have_kinds).
struct KindOfWork {
  WorkKind kind;
  uint32_t steps_of_others;  // as Work::steps_before, of the other kind's works
};
struct WorkWithKind : KindOfWork, Work {};
template <BwdTraits T>
using WorkOf = Choice<works_have_kinds(T), WorkWithKind, Work>;
__device__ inline WorkKind work_kind_of(const Work&) { return WorkKind::kAll; }
__device__ inline WorkKind work_kind_of(const WorkWithKind& work) { return work.kind; }

// A step of a work: a visit for a head of the group.
struct Step {
  int visit;
  int head = 0;

  __device__ explicit Step(const Work& work) : visit(work.rows.n_block_min) {}
  __device__ int m_block() const { return block_of_visit(visit); }
  __device__ void advance(const Work& work, const BwdParams& p) {
    if (p.order.heads_together != 0) {
      if (++head < p.group) return;
      head = 0;
      ++visit;
    } else {
      if (++visit < work.rows.n_block_max) return;
      visit = work.rows.n_block_min;
      ++head;
    }
  }
};

__device__ inline uint32_t num_key_blocks(const BwdParams& p) {
  return (p.sequences.seqlen_k + kKeys - 1) / kKeys;
}

// The `index`th of all works, written to shared memory part by part: the thread has few registers.
// False: there is none.
template <BwdTraits T>
__device__ inline bool find_work(const BwdParams& p, uint32_t index, WorkOf<T>* work) {
  work->steps = -1;
  if constexpr (works_have_kinds(T)) work->kind = T.split ? take_work_kind(index) : WorkKind::kAll;
  const uint32_t blocks = num_key_blocks(p);
  if (index >= num_key_heads(p) * blocks) return false;
  const BlockOfKeys at = block_of_keys(p.order, index, p.sequences.batch, p.heads_kv, blocks);
  const int first = at.block * kKeys;
  work->index = index;
  work->head = at.head;
  work->kv_head = work->head / p.subgroups;
  work->n_block = at.block;
  const Sequence s = sequence_of(p.sequences, at.batch);
  work->sequence = s;
  if (first >= s.seqlen_k) return true;
  const BlockRange rows = rows_of_keys(p.mask, s, first, first + kKeys, T.q_rows);
  work->rows = in_order_of_visits(rows, goes_down(p.order, at.head, p.heads_kv));
  work->first_block = static_cast<int>(first_query_block(p, s, at.head * p.group));
  work->steps = p.group * (rows.n_block_max - rows.n_block_min);
  return true;
}

// Named barriers: 0 is __syncthreads.
enum NamedBarrier { kStore = 1 };  // kStore: + math warpgroup

// Everything a role needs. What it reads of the work seldom stays in shared memory: registers are
// scarce.
template <BwdTraits T>
struct Context {
  static constexpr SmemLayout kSmem = smem_layout(T);
  static constexpr auto kBarriers = offsets_of(barriers(T));

  const BwdParams& params;
  unsigned char* smem;

  __device__ WorkOf<T>& work(int slot) const {
    static_assert(sizeof(WorkOf<T>) == work_bytes(T));
    return *reinterpret_cast<WorkOf<T>*>(smem + kSmem.work + slot * work_bytes(T));
  }
  __device__ ptx::SmemAddr smem_address(int offset) const { return ptx::smem_addr(smem) + offset; }
  __device__ ptx::SmemAddr barrier(int kind, int stage = 0) const {
    return smem_address(kSmem.barriers + 8 * (kBarriers.first[kind] + stage));
  }
  __device__ Pipeline pipeline(int full_kind, int first = 0) const {
    return {barrier(full_kind, first), barrier(full_kind + 1, first)};
  }
  // The rings of a kind of work.
  template <WorkKind kKind>
  __device__ Pipeline q_pipeline() const {
    return pipeline(kQFull, kKind == WorkKind::kDv ? T.stages : 0);
  }
  template <WorkKind kKind>
  __device__ Pipeline dout_pipeline() const {
    return pipeline(kDoutFull, kKind == WorkKind::kDv ? T.dout_stages : 0);
  }
  // Where a stage of Q or dO lies: in V for those that only works for dv have.
  __device__ static int q_place(int stage) { return kSmem.q + (T.stages - 1 - stage) * q_bytes(T); }
  __device__ static int dout_place(int stage) { return kSmem.dout + stage * dout_bytes(T); }
};

template <BwdTraits T>
using KState = PipelineState<T.k_stages>;
using VState = PipelineState<1>;

// The works of a CTA as a role reads them from shared memory, where the current one stays until
// release().
template <BwdTraits T>
class WorkReader {
 public:
  __device__ explicit WorkReader(const Context<T>& context) : c_(context) {}

  __device__ const WorkOf<T>& wait() const {
    c_.pipeline(kWorkFull).consumer_wait(slot_);
    return c_.work(slot_.stage());
  }
  // The states of the rings of K and V, of which every work takes a stage.
  __device__ KState<T> k() const { return {slot_.count}; }
  __device__ VState v() const { return {slot_.count}; }
  // Where registers are scarce, before release(): which one the current work is.
  __device__ void recall(const Work& work) { slot_.count = work.number; }
  // One thread of a warp arrives, after the others have read.
  __device__ void release(bool arrives) {
    if (arrives) c_.pipeline(kWorkFull).consumer_release(slot_);
    slot_.advance();
  }

 private:
  const Context<T>& c_;
  PipelineState<kWorkSlots> slot_;
};

// The rings of Q and dO of a kind of work, at a step.
template <BwdTraits T, WorkKind kKind>
struct Rings {
  using Q = PipelineState<q_stages(T, kKind)>;
  using Dout = PipelineState<dout_stages(T, kKind)>;

  uint32_t steps;  // before it, of all works of the kind

  __device__ Q q() const { return {steps}; }
  __device__ Dout dout() const { return {steps}; }
};
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
