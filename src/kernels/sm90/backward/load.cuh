// The load warp: Q and dO of every step, and with them the rows' statistics.
#pragma once

#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/sm90/backward/tile_load.cuh"

namespace fa4::sm90::bwd {

template <BwdTraits T>
class Loader {
 public:
  __device__ explicit Loader(const Context<T>& context)
      : c(context), p(context.params), tiles(context, kRawOfLoad) {}

  // Tails are cleared where something else may lie behind them.
  __device__ void run() {
    WorkReader<T> works(c);
#pragma unroll 1
    for (;;) {
      const auto& work = works.wait();
      if (work.steps < 0) break;
      load_work(work, works.v());
      __syncwarp();
      works.release(ptx::elect_sync());
      if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kWorkWanted));
    }
    ptx::griddepcontrol_launch_dependents();  // what is left takes no more loads
  }

 private:
  // A ring of Q or dO at a step. Which kind of work has it is data, so that load_work is code for
  // both.
  struct Ring {
    Pipeline pipeline;
    int stages;
    int stage;
    uint32_t phase;

    __device__ ptx::SmemAddr full() const { return pipeline.full_barrier(stage); }
    __device__ void acquire() const { wait(pipeline.empty_barrier(stage), phase ^ 1); }
    // Until what this ring had last in one of its stages has been read; the step is not yet there.
    __device__ void acquire_last_of(int other) const {
      wait(pipeline.empty_barrier(other), phase ^ (other >= stage ? 1 : 0));
    }
  };
  template <BarrierKind kFull, int kStages, int kDvStages>
  __device__ Ring ring(bool of_dv, uint32_t steps) const {
    if constexpr (T.split) {
      const PipelineState<kDvStages> at{steps};
      if (of_dv) return {c.pipeline(kFull, kStages), kDvStages, at.stage(), at.phase()};
    }
    const PipelineState<kStages> at{steps};
    return {c.pipeline(kFull), kStages, at.stage(), at.phase()};
  }
  __device__ Ring q_ring(bool of_dv, uint32_t steps) const {
    return ring<kQFull, T.stages, T.dv_stages>(of_dv, steps);
  }
  __device__ Ring dout_ring(bool of_dv, uint32_t steps) const {
    return ring<kDoutFull, T.dout_stages, T.dv_stages>(of_dv, steps);
  }

  // Addresses are computed before a wait, so that a load begins when its stage is free.
  __device__ void load_work(const WorkOf<T>& w, VState v) {
    const bool of_dv = T.split && work_kind_of(w) == WorkKind::kDv;
    const Sequence& s = w.sequence;
    const bool packed_q = p.sequences.cu_seqlens_q != nullptr;
    const bool clears_q = packed_q || p.sequences.seqused_q != nullptr;
    Step step(w);
#pragma unroll 1
    for (uint32_t steps = w.steps_before; steps != w.steps_before + w.steps; ++steps) {
      const int m = step.m_block(), head = w.head * p.group + step.head;
      const int rows = clears_q ? s.seqlen_q - m * T.q_rows : T.q_rows;
      const int row = s.offset_q + m * T.q_rows, batch_q = packed_q ? 0 : s.batch;
      const int first = m * q_blocks(T), last = num_query_blocks(s.seqlen_q) - 1;
      const int64_t first_row =
          (w.first_block + step.head * p.workspace.head_blocks + first) * kQueryRows;
      // The first steps of a work come where the other kind's may still be read.
      [[maybe_unused]] const bool comes_first = steps - w.steps_before < kMostStages;
      const Ring q = q_ring(of_dv, steps);
      const StatisticSource statistics{
          p.workspace.statistics + first_row,
          multiplies_lse(T) ? nullptr : p.workspace.neg_lse_log2 + first_row, last - first,
          c.kSmem.stats + q.stage * stage_statistics_bytes(T)};
      if constexpr (T.split) {
        if (comes_first) wait_for_place(q, q_ring(!of_dv, w.steps_of_others), v);
      }
      q.acquire();
      tiles.template load<T.q_rows, T.head_dim>({&p.maps.q, head, row, batch_q}, c.q_place(q.stage),
                                                q.full(), rows, statistics);
      const Ring dout = dout_ring(of_dv, steps);
      if constexpr (T.split) {
        if (comes_first) wait_for_place(dout, dout_ring(!of_dv, w.steps_of_others), v);
      }
      dout.acquire();
      const TensorMap* map_of_dout = p.inputs.dout.data == nullptr ? nullptr : &p.maps.dout;
      tiles.template load<T.q_rows, T.head_dim_v>({map_of_dout, head, row, batch_q},
                                                  c.dout_place(dout.stage), dout.full(), rows);
      step.advance(w, p);
    }
    // A parity tells a phase from the next one only: every work's is waited for, not those alone
    // that give V's place away.
    if constexpr (T.split) c.pipeline(kVFull).consumer_wait(v);
  }

  // Until works of the other kind have read what they had in the place of a stage, the same of
  // their ring; or until dk has left V's place.
  __device__ void wait_for_place(const Ring& ring, const Ring& of_others, VState v) const {
    if (ring.stage < of_others.stages) return of_others.acquire_last_of(ring.stage);
    c.pipeline(kVFull).consumer_wait(v);
  }

  // Of a ring of Q or dO: works for dv have the most.
  static constexpr uint32_t kMostStages = T.split ? T.dv_stages : T.stages;

  const Context<T>& c;
  const BwdParams& p;
  TileLoads<T, ReadBy::kWorksOfHead> tiles;
};

}  // namespace fa4::sm90::bwd
