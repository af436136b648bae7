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
      const Work& work = works.wait();
      if (work.steps < 0) break;
      if (!T.split || work.part != Part::kDv) {
        load_work<kWithDk>(work, works.v());
      } else if constexpr (T.split) {
        load_work<Part::kDv>(work, works.v());
      }
      __syncwarp();
      works.release(ptx::elect_sync());
      if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kWorkWanted));
    }
    ptx::griddepcontrol_launch_dependents();  // what is left takes no more loads
  }

 private:
  static constexpr Part kWithDk = part_with_dk(T);

  // Addresses are computed before a wait, so that a load begins when its stage is free.
  template <Part kPart>
  __device__ void load_work(const Work& w, VState v) {
    constexpr Part kOther = kPart == Part::kDv ? Part::kDkAndDq : Part::kDv;
    const Sequence& s = w.sequence;
    const bool packed_q = p.sequences.cu_seqlens_q != nullptr;
    const bool clears_q = packed_q || p.sequences.seqused_q != nullptr;
    const TensorMap* map_of_dout = p.inputs.dout.data == nullptr ? nullptr : &p.maps.dout;
    Rings<T, kPart> rings{w.steps_before};
#pragma unroll 1
    for (int head = w.head * p.group; head < (w.head + 1) * p.group; ++head) {
      const int block = static_cast<int>(first_query_block(p, s, head));  // fewer than 2^31
#pragma unroll 1
      for (int m = w.rows.n_block_min; m < w.rows.n_block_max; ++m) {
        const int rows = clears_q ? s.seqlen_q - m * T.q_rows : T.q_rows;
        const int row = s.offset_q + m * T.q_rows, batch_q = packed_q ? 0 : s.batch;
        const int first = m * q_blocks(T), last = num_query_blocks(s.seqlen_q) - 1;
        // The step's part of an array with a statistic of each row of the workspace.
        const auto statistic = [&](const auto* of_rows, int stage, int offset) {
          return StatisticSource{of_rows + int64_t{block + first} * kQueryRows, last - first,
                                 c.kSmem.stats + stage * stage_statistics_bytes(T) + offset};
        };
        // The first of this work in its stages, which works of the other kind may still read.
        const bool comes_first =
            T.split && rings.steps - w.steps_before < static_cast<uint32_t>(q_stages(T, kPart));
        const Pipeline q = c.template q_pipeline<kPart>();
        const int q_stage = rings.q().stage();
        StatisticSource with_q, with_dout;
        if constexpr (multiplies_statistics(T)) {
          with_q = statistic(p.workspace.statistics, q_stage, 0);
        } else {
          with_q = statistic(p.workspace.neg_lse_log2, q_stage, 0);
        }
        if constexpr (T.split) {
          if (comes_first) {
            wait_for_place<kPart>(c.template q_pipeline<kOther>(),
                                  typename Rings<T, kOther>::Q{w.steps_of_others}, q_stage, v);
          }
        }
        q.producer_acquire(rings.q());
        tiles.template load<T.q_rows, T.head_dim>({&p.maps.q, head, row, batch_q},
                                                  c.q_place(q_stage), q.full_barrier(q_stage), rows,
                                                  with_q);
        const Pipeline dout = c.template dout_pipeline<kPart>();
        const int dout_stage = rings.dout().stage();
        if constexpr (!multiplies_statistics(T)) {
          with_dout = statistic(p.workspace.delta, dout_stage, stat_bytes(T));
        }
        if constexpr (T.split) {
          if (comes_first) {
            wait_for_place<kPart>(c.template dout_pipeline<kOther>(),
                                  typename Rings<T, kOther>::Dout{w.steps_of_others}, dout_stage,
                                  v);
          }
        }
        dout.producer_acquire(rings.dout());
        tiles.template load<T.q_rows, T.head_dim_v>({map_of_dout, head, row, batch_q},
                                                    c.dout_place(dout_stage),
                                                    dout.full_barrier(dout_stage), rows, with_dout);
        ++rings.steps;
      }
    }
    // A parity tells a phase from the next one only: every work's is waited for, not those alone
    // that give V's place away.
    if constexpr (T.split) c.pipeline(kVFull).consumer_wait(v);
  }

  // Until works of the other kind have read what they had in the place of a stage, the same of
  // their ring; or until dk has left V's place.
  template <Part kPart, int kStages>
  __device__ void wait_for_place(const Pipeline& of_others, PipelineState<kStages> next, int stage,
                                 VState v) const {
    if (kPart == Part::kDv && stage >= kStages) return c.pipeline(kVFull).consumer_wait(v);
    next.count += (stage + kStages - next.stage()) % kStages;
    of_others.producer_acquire(next);
  }

  const Context<T>& c;
  const BwdParams& p;
  TileLoads<T, ReadBy::kWorksOfHead> tiles;
};

}  // namespace fa4::sm90::bwd
