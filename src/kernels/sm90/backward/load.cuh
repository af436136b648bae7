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
      load_work(work);
      __syncwarp();
      works.release(ptx::elect_sync());
      if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kWorkWanted));
    }
    ptx::griddepcontrol_launch_dependents();  // what is left takes no more loads
  }

 private:
  __device__ void load_work(const Work& w) {
    const Sequence& s = w.sequence;
    const bool packed_q = p.sequences.cu_seqlens_q != nullptr;
    const bool clears_q = packed_q || p.sequences.seqused_q != nullptr;
    const int batch_q = packed_q ? 0 : s.batch;
    const TensorMap* map_of_dout = p.inputs.dout.data == nullptr ? nullptr : &p.maps.dout;
#pragma unroll 1
    for (int g = 0; g < p.group; ++g) {
      const int head = w.head * p.group + g;
      const int block = static_cast<int>(first_query_block(p, s, head));  // fewer than 2^31
#pragma unroll 1
      for (int m = w.rows.n_block_min; m < w.rows.n_block_max; ++m) {
        const int rows = clears_q ? s.seqlen_q - m * T.q_rows : T.q_rows;
        const int row = s.offset_q + m * T.q_rows, stage = ring.stage();
        const int stats = c.kSmem.stats + stage * stage_statistics_bytes(T);
        const int first = m * q_blocks(T), last = num_query_blocks(s.seqlen_q) - 1;
        const int64_t stat = int64_t{block + first} * kQueryRows;
        const Pipeline q = c.pipeline(kQFull), dout = c.pipeline(kDoutFull);
        using Statistic = typename TileLoads<T>::Statistic;
        Statistic with_q{nullptr, last - first, stats};
        Statistic with_dout{nullptr, last - first, stats + stat_bytes(T)};
        if constexpr (multiplies_statistics(T)) {
          with_q.rows = p.workspace.statistics + stat;
        } else {
          with_q.rows = p.workspace.neg_lse_log2 + stat;
          with_dout.rows = p.workspace.delta + stat;
        }
        q.producer_acquire(ring);
        tiles.template load<T.q_rows, T.head_dim>({&p.maps.q, head, row, batch_q},
                                                  c.kSmem.q + stage * q_bytes(T),
                                                  q.full_barrier(stage), rows, with_q);
        dout.producer_acquire(ring);
        tiles.template load<T.q_rows, T.head_dim_v>({map_of_dout, head, row, batch_q},
                                                    c.kSmem.dout + stage * dout_bytes(T),
                                                    dout.full_barrier(stage), rows, with_dout);
        ring.advance();
      }
    }
  }

  const Context<T>& c;
  const BwdParams& p;
  TileLoads<T> tiles;
  RingState<T> ring;
};

}  // namespace fa4::sm90::bwd
