// The schedule warp: which blocks of keys the CTA takes, and their K and V.
#pragma once

#include "kernels/sm90/backward/finish.cuh"
#include "kernels/sm90/backward/tile_load.cuh"

namespace fa4::sm90::bwd {

// A CTA takes its next work when the loads of the last one are under way: not sooner, so that long
// works go to those who are free. In the order of a ticket: who waits for a turn (deterministic)
// waits for works that were taken before, and every CTA finishes its works in the order in which it
// took them. Without queries nobody clears the ticket: by stride.
template <BwdTraits T>
class Scheduler {
 public:
  __device__ explicit Scheduler(const Context<T>& context)
      : c(context),
        p(context.params),
        tiles(context, kRawOfSchedule),
        finisher(context),
        next(blockIdx.x) {}

  __device__ void run() {
#pragma unroll 1
    for (;;) {
      wait(c.barrier(kWorkWanted), (slot.count + 1) & 1);
      c.pipeline(kWorkFull).producer_acquire(slot);
      WorkOf<T>* work = &c.work(slot.stage());
      const bool is_end = !take(work);
      // Blocks that their sequences do not have are nobody's work, but for what they clear.
      const bool is_wanted = work->steps >= 0;
      if (is_wanted || is_end) publish(work);
      if (is_end) break;
      if (is_wanted) load_keys(*work);
      clear_share<T>(p, *work);  // behind V, for which the math warps wait
      if constexpr (T.finish_stages > 0) {
        if (finisher.run(*work)) recall(*work);
      }
      if (is_wanted) slot.advance();
      __syncwarp();  // every lane has read the work
    }
    if constexpr (T.finish_stages > 0) finisher.wait_for_stores();
  }

 private:
  // The next one; false: there is none.
  __device__ bool take(WorkOf<T>* work) {
    int is_there = 0;
    if (threadIdx.x % 32 == 0) is_there = find_work<T>(p, take_index(), work);
    __syncwarp();
    return __shfl_sync(0xffffffffu, is_there, 0) != 0;
  }

  __device__ void publish(WorkOf<T>* work) {
    if (threadIdx.x % 32 == 0) {
      count(work);
      ptx::mbarrier_arrive(c.barrier(kWorkFull, slot.stage()));
    }
    __syncwarp();
  }

  __device__ void load_keys(const WorkOf<T>& work) {
    const KState<T> k{slot.count};
    c.pipeline(kKFull).producer_acquire(k);
    load<T.head_dim>(work, p.maps.k, c.kSmem.k + k.stage() * k_bytes(T),
                     c.barrier(kKFull, k.stage()));
    c.pipeline(kVFull).producer_acquire(VState{slot.count});
    if (T.split && work_kind_of(work) == WorkKind::kDv) {
      arrive(c.barrier(kVFull));  // Q and dO may come there
    } else {
      load<T.head_dim_v>(work, p.maps.v, c.kSmem.v, c.barrier(kVFull));
    }
  }

  __device__ void count(WorkOf<T>* work) {
    work->number = slot.count;
    const bool of_dv = T.split && work_kind_of(*work) == WorkKind::kDv;
    work->steps_before = of_dv ? steps_of_dv : steps_with_dk;
    if constexpr (T.split) work->steps_of_others = of_dv ? steps_with_dk : steps_of_dv;
    (of_dv ? steps_of_dv : steps_with_dk) += work->steps;
  }

  // Restores from the work what no register kept while dq was finished. Such launches are dense
  // (can_finish in backward_order.cc): every work was counted, so that its number is this slot's.
  __device__ void recall(const Work& work) {
    slot.count = work.number;
    steps_with_dk = work.steps_before + work.steps;
    next = 0;        // works come by the ticket
    tiles.forget();  // there are no tails to clear
  }

  __device__ uint32_t take_index() {
    if (p.workspace.ticket != nullptr) return atomicAdd(p.workspace.ticket, 1u);
    const uint32_t index = next;
    next += gridDim.x;
    return index;
  }

  __device__ static void arrive(ptx::SmemAddr full) {
    if (ptx::elect_sync()) ptx::mbarrier_arrive(full);
    __syncwarp();
  }

  // K or V; where no query sees the keys, no more than the arrival. Tails are cleared where
  // something else may lie behind them, K's too: dq adds up dS K over all keys of the block, and a
  // dS of 0 does not silence NaN.
  template <int kColumns>
  __device__ void load(const Work& w, const TensorMap& map, int to, ptx::SmemAddr full) {
    if (w.steps == 0) return arrive(full);
    const bool packed = p.sequences.cu_seqlens_k != nullptr;
    const bool clears = packed || p.sequences.seqused_k != nullptr;
    tiles.template load<kKeys, kColumns>(
        {&map, w.kv_head, w.sequence.offset_k + w.first_key(), packed ? 0 : w.sequence.batch}, to,
        full, clears ? w.sequence.seqlen_k - w.first_key() : kKeys);
  }

  const Context<T>& c;
  const BwdParams& p;
  TileLoads<T, ReadBy::kOneWork> tiles;
  Finisher<T> finisher;
  PipelineState<kWorkSlots> slot;
  uint32_t steps_with_dk = 0, steps_of_dv = 0;  // of the works taken
  uint32_t next;
};

}  // namespace fa4::sm90::bwd
