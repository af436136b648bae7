// The load warp: K and V once, then Q and dO of every step, each with its statistic.
#pragma once

#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/backward/context.cuh"
#include "kernels/tile/clear_rows.cuh"

namespace fa4::sm90::bwd {

// Rows of a tensor as TMA finds them.
struct TileSource {
  const TensorMap* map;  // null: zeros
  int head;
  int row;
  int batch;
};

template <BwdTraits T>
class Loader {
 public:
  __device__ explicit Loader(const Context<T>& context) : c(context), p(context.params) {}

  // Tails are cleared where something else may lie behind them. K's, too: dq adds up dS K over all
  // keys of the block, and a dS of 0 does not silence NaN.
  __device__ void run() {
    const Work w = c.work();
    if (w.steps == 0) return;
    const Sequence& s = w.sequence;
    const bool packed_q = p.sequences.cu_seqlens_q != nullptr;
    const bool packed_k = p.sequences.cu_seqlens_k != nullptr;
    const bool clears_q = packed_q || p.sequences.seqused_q != nullptr;
    const bool clears_k = packed_k || p.sequences.seqused_k != nullptr;
    const int keys = clears_k ? s.seqlen_k - w.first_key() : kKeys;
    const int batch_k = packed_k ? 0 : s.batch, batch_q = packed_q ? 0 : s.batch;
    load<kKeys, T.head_dim>({&p.maps.k, w.head, s.offset_k + w.first_key(), batch_k}, c.kSmem.k,
                            c.barrier(kKFull), keys);
    if (w.part != Part::kDv) {
      load<kKeys, T.head_dim_v>({&p.maps.v, w.head, s.offset_k + w.first_key(), batch_k}, c.kSmem.v,
                                c.barrier(kVFull), keys);
    }
    const TensorMap* map_of_dout = p.inputs.dout.data == nullptr ? nullptr : &p.maps.dout;
    RingState<T> ring;
#pragma unroll 1
    for (int g = 0; g < p.group; ++g) {
      const int head = w.head * p.group + g;
      const int64_t block = first_query_block(p, s, head);
#pragma unroll 1
      for (int m = w.rows.n_block_min; m < w.rows.n_block_max; ++m) {
        const int rows = clears_q ? s.seqlen_q - m * T.q_rows : T.q_rows;
        const int row = s.offset_q + m * T.q_rows, stage = ring.stage();
        const int stats = c.kSmem.stats + 2 * stage * stat_bytes(T);
        const int first = m * q_blocks(T), last = num_query_blocks(s.seqlen_q) - 1;
        const int64_t stat = (block + first) * kQueryRows;
        const Pipeline q = c.pipeline(kQFull), dout = c.pipeline(kDoutFull);
        q.producer_acquire(ring);
        load<T.q_rows, T.head_dim>({&p.maps.q, head, row, batch_q}, c.kSmem.q + stage * q_bytes(T),
                                   q.full_barrier(stage), rows,
                                   {p.workspace.neg_lse_log2 + stat, last - first, stats});
        dout.producer_acquire(ring);
        load<T.q_rows, T.head_dim_v>(
            {map_of_dout, head, row, batch_q}, c.kSmem.dout + stage * dout_bytes(T),
            dout.full_barrier(stage), rows,
            {p.workspace.delta + stat, last - first, stats + stat_bytes(T)});
        ring.advance();
      }
    }
    ptx::griddepcontrol_launch_dependents();  // what is left takes no more loads
  }

 private:
  // A statistic of a step's rows in the workspace, and its place. Of the last step's blocks the
  // second may not be there: it gets the first one's values, and masks keep its rows out.
  struct Statistic {
    const float* rows;  // null: none
    int last_block;     // counted from the step's first
    int to;
  };

  // A tile in slabs to `to`, and with it a statistic. `valid` rows are inside the sequence: the
  // others become zero.
  template <int kRows, int kColumns>
  __device__ void load(const TileSource& from, int to, ptx::SmemAddr full, int valid,
                       const Statistic& stat = {}) {
    constexpr int kSlab = slab_columns(kColumns), kSlabBytes = kRows * kSlab * kElementBytes;
    const bool given = from.map != nullptr;
    if (!given) valid = 0;
    const bool clear = valid < kRows;
    const ptx::SmemAddr barrier = clear ? c.barrier(kRaw) : full;
    if (ptx::elect_sync()) {
      ptx::mbarrier_arrive_expect_tx(barrier, (given ? kRows * kColumns * kElementBytes : 0) +
                                                  (stat.rows == nullptr ? 0 : stat_bytes(T)));
#pragma unroll
      for (int slab = 0; slab < num_slabs(kColumns) && given; ++slab) {
        ptx::cp_async_bulk_tensor_4d_load(c.smem_address(to + slab * kSlabBytes), from.map, barrier,
                                          slab * kSlab, from.head, from.row, from.batch);
      }
#pragma unroll
      for (int i = 0; i < q_blocks(T) && stat.rows != nullptr; ++i) {
        ptx::cp_async_bulk_load(c.smem_address(stat.to + i * kStatBlockBytes),
                                stat.rows + (i == 0 ? 0 : min(i, stat.last_block)) * kQueryRows,
                                kStatBlockBytes, barrier);
      }
    }
    __syncwarp();
    if (!clear) return;
    wait(barrier, raw.phase());
    raw.advance();
    clear_rows<kRows, kColumns>(c.smem + to, valid);
    if (ptx::elect_sync()) ptx::mbarrier_arrive(full);
    __syncwarp();
  }

  const Context<T>& c;
  const BwdParams& p;
  PipelineState<1> raw;
};

}  // namespace fa4::sm90::bwd
