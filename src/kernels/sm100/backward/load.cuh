// The load warp: K and V once, then of every step the statistics of its rows, Q and dO. What a pair
// of CTAs shares in a product is loaded by both, and announced where the MMA thread waits.
#pragma once

#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/ptx/store_async.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm100/backward/context.cuh"
#include "kernels/tile/clear_rows.cuh"

namespace fa4::sm100::bwd {

// Rows of a tensor from its column `column` on as TMA finds them. Sequences of a packed tensor are
// one batch.
struct TileSource {
  const TensorMap* map;  // null: zeros
  int column;
  int head;
  int row;
  int batch;
};

template <BwdTraits T, WorkKind kKind>
class Loader {
 public:
  __device__ explicit Loader(const Context<T, kKind>& context)
      : c(context),
        p(context.params),
        w(context.work()),
        rank(static_cast<int>(context.group.rank)) {}

  // Tails are cleared where something else may lie behind them. Those of Q, dO and K: a P or a dS
  // of 0 does not silence NaN; and that of V, whose NaN would be dP's, and so dS's under a P of 0.
  __device__ void run() {
    if (w.steps == 0) return;
    const bool packed_k = p.sequences.cu_seqlens_k != nullptr;
    const int keys = keys_have_tails(p.sequences) ? w.sequence.seqlen_k : kAll,
              batch_k = packed_k ? 0 : w.sequence.batch;
    const auto key_source = [&](const TensorMap& map, int column, int first_key) {
      return TileSource{&map, column, w.head / p.subgroups, w.sequence.offset_k + first_key,
                        batch_k};
    };
    load<QkTile<kKeys, T.head_dim>>(key_source(p.maps.k, 0, w.first_key), c.kSmem.k, kKFull, 0,
                                    keys - w.first_key);
#pragma unroll 1
    for (Steps steps(w, p.group); !steps.is_done(); steps.advance(w)) {
      const bool is_first = steps.left == w.steps;
      load_stats(steps);
      // Where works are split dO is free first.
      const bool dout_first = kKind == WorkKind::kDkAndDq && !is_first;
      if (dout_first) load_dout(steps);
      load_q(steps);
      if (kKind != WorkKind::kDv && is_first) {
        load<VTile<kKeys, T.head_dim_v>>(key_source(p.maps.v, 0, w.first_key), c.kSmem.v, kVFull, 0,
                                         keys - w.first_key);
      }
      if (!dout_first) load_dout(steps);
      if constexpr (T.cta_group > 1) {
        load_dout_sum(steps);
        load_q_sum(steps);
        if (is_first) {
          const int first = w.first_key - rank * kKeys;
          load<QkTile<group_keys(T), loaded_columns(dk_columns(T))>>(
              key_source(p.maps.k, rank * dk_columns(T), first), c.kSmem.k_sum, kKSumFull, 0,
              keys - first);
        }
      }
    }
    ptx::griddepcontrol_launch_dependents();  // what is left takes no more loads
    drain();
  }

 private:
  static constexpr int kAll = 1 << 30;  // rows: none is past the end
  static constexpr bool kQTwice = q_twice(T);
  static constexpr int kBlockRows = block_rows(T), kStatBytes = stat_bytes(T);

  // A tile of kRows rows, and how many of them a TMA box has.
  template <int kTileRows, int kTileColumns, int kSlabColumns, int kMaxBox>
  struct Tile {
    static constexpr int kRows = kTileRows, kColumns = kTileColumns, kSlab = kSlabColumns;
    static constexpr int kBoxRows = kTileRows < kMaxBox ? kTileRows : kMaxBox;
    static constexpr int kBytes = kRows * kColumns * kElementBytes;
  };
  template <int kTileRows, int kColumns, int kMaxBox = 128>
  using QkTile = Tile<kTileRows, kColumns, qk_slab(T), kMaxBox>;
  template <int kTileRows, int kColumns, int kMaxBox = 128>
  using VTile = Tile<kTileRows, kColumns, v_slab(T), kMaxBox>;

  __device__ void load_q(const Steps& steps) {
    const int first = rank * q_rows(T);
    c.wait(kQTwice ? kQSumEmpty : kQEmpty, q.stage(), q.phase() ^ 1);
    load<QkTile<q_rows(T), T.head_dim>>(query_source(p.maps.q, 0, steps, first),
                                        c.kSmem.q + q.stage() * q_bytes(T), kQFull, q.stage(),
                                        rows_left(steps, first));
    q.advance();
  }
  __device__ void load_q_sum(const Steps& steps) {
    if constexpr (kQTwice) {
      c.wait(kQEmpty, q_sum.stage(), q_sum.phase());  // S of this very block is done
    } else {
      c.wait(kQSumEmpty, q_sum.stage(), q_sum.phase() ^ 1);
    }
    load<QkTile<kBlockRows, loaded_columns(dk_columns(T)), q_rows(T)>>(
        query_source(p.maps.q, rank * dk_columns(T), steps, 0),
        c.kSmem.q_sum + q_sum.stage() * q_sum_bytes(T), kQSumFull, q_sum.stage(),
        rows_left(steps, 0));
    q_sum.advance();
  }

  __device__ void load_dout(const Steps& steps) {
    const int first = rank * q_rows(T);
    c.wait(kDoutEmpty, dout.stage(), dout.phase() ^ 1);
    load<VTile<q_rows(T), T.head_dim_v>>(query_source(p.maps.dout, 0, steps, first),
                                         c.kSmem.dout + dout.stage() * dout_bytes(T), kDoutFull,
                                         dout.stage(), rows_left(steps, first));
    dout.advance();
  }
  __device__ void load_dout_sum(const Steps& steps) {
    c.wait(kDoutSumEmpty, dout_sum.stage(), dout_sum.phase() ^ 1);
    load<VTile<kBlockRows, loaded_columns(dv_columns(T)), q_rows(T)>>(
        query_source(p.maps.dout, rank * dv_columns(T), steps, 0),
        c.kSmem.dout_sum + dout_sum.stage() * dout_sum_bytes(T), kDoutSumFull, dout_sum.stage(),
        rows_left(steps, 0));
    dout_sum.advance();
  }

  // Rows of a step's block from `first` on, and how many of those the sequence has.
  __device__ TileSource query_source(const TensorMap& map, int column, const Steps& steps,
                                     int first) const {
    const bool is_zero = &map == &p.maps.dout && p.inputs.dout.data == nullptr;
    return {is_zero ? nullptr : &map, column, steps.head,
            w.sequence.offset_q + steps.m_block() * kBlockRows + first,
            p.sequences.cu_seqlens_q != nullptr ? 0 : w.sequence.batch};
  }
  __device__ int rows_left(const Steps& steps, int first) const {
    return queries_have_tails(p.sequences)
               ? w.sequence.seqlen_q - steps.m_block() * kBlockRows - first
               : kAll;
  }

  // A tile in slabs to `to`. `valid` rows are inside the sequence: the others become zero.
  template <class Tile>
  __device__ void load(const TileSource& from, int to, int kind, int stage, int valid) {
    const bool is_given = from.map != nullptr, clear = !is_given || valid < Tile::kRows;
    const ptx::SmemAddr full = c.barrier(kind, stage);
    if (is_given && ptx::elect_sync()) {
      if (clear) {
        ptx::mbarrier_arrive_expect_tx(c.barrier(kRaw), Tile::kBytes);
      } else {
        expect(full, Tile::kBytes);
      }
#pragma unroll
      for (int column = 0; column < Tile::kColumns; column += Tile::kSlab) {
#pragma unroll
        for (int row = 0; row < Tile::kRows; row += Tile::kBoxRows) {
          const int place =
              (column * Tile::kRows + row * Tile::kSlab) * kElementBytes;  // slabs, then rows
          copy(c.smem_address(to + place), from, column, row, clear ? c.barrier(kRaw) : full,
               clear);
        }
      }
    }
    __syncwarp();
    if (!clear) return;
    if (is_given) raw.wait(c, kRaw);
    clear_rows<Tile::kRows, Tile::kColumns, Tile::kSlab>(c.smem + to, is_given ? max(valid, 0) : 0);
    if (ptx::elect_sync()) c.group.release_to_leader(full);
    __syncwarp();
  }

  __device__ void expect(ptx::SmemAddr barrier, int bytes) const {
    if constexpr (T.cta_group == 1) {
      ptx::mbarrier_arrive_expect_tx(barrier, bytes);
    } else {
      ptx::mbarrier_arrive_expect_tx_cluster(ptx::mapa(barrier, 0), bytes);
    }
  }
  __device__ void copy(ptx::SmemAddr to, const TileSource& from, int column, int row,
                       ptx::SmemAddr barrier, bool is_own) const {
    if constexpr (T.cta_group == 1) {
      ptx::cp_async_bulk_tensor_4d_load(to, from.map, barrier, from.column + column, from.head,
                                        from.row + row, from.batch);
    } else {
      ptx::cp_async_bulk_tensor_4d_load_pair(
          to, from.map, ptx::mapa(barrier, is_own ? c.group.rank : 0), from.column + column,
          from.head, from.row + row, from.batch);
    }
  }

  // The workspace has blocks of kQueryRows rows: a block here may be two of them, of which the
  // second may not be there. Its values are those of the last one then, and no product sees them.
  __device__ void load_stats(const Steps& steps) {
    constexpr int kParts = kBlockRows / kQueryRows, kPartBytes = kQueryRows * 4;
    const int64_t first = first_query_block(p, w.sequence, steps.head);
    const int last = num_query_blocks(w.sequence.seqlen_q) - 1;
    c.wait(kStatsEmpty, stats.stage(), stats.phase() ^ 1);
    if (ptx::elect_sync()) {
      const ptx::SmemAddr barrier = c.barrier(kStatsFull, stats.stage());
      const ptx::SmemAddr to = c.smem_address(c.kSmem.stats + stats.stage() * 2 * kStatBytes);
      ptx::mbarrier_arrive_expect_tx(barrier, 2 * kStatBytes);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const int64_t from = (first + min(steps.m_block() * kParts + i, last)) * kQueryRows;
        ptx::cp_async_bulk_load(to + i * kPartBytes, p.workspace.neg_lse_log2 + from, kPartBytes,
                                barrier);
        ptx::cp_async_bulk_load(to + kStatBytes + i * kPartBytes, p.workspace.delta + from,
                                kPartBytes, barrier);
      }
    }
    __syncwarp();
    stats.advance();
  }

  // Until everything loaded was used: the tensor core's last commits must find the CTA alive.
  __device__ void drain() {
    drain(kQEmpty, q);
    drain(kDoutEmpty, dout);
    if constexpr (T.cta_group > 1) {
      drain(kQSumEmpty, q_sum);
      drain(kDoutSumEmpty, dout_sum);
    }
  }
  template <int kStages>
  __device__ void drain(int kind, PipelineState<kStages> state) const {
#pragma unroll 1
    for (int i = 0; i < kStages; ++i, state.advance()) {
      c.wait(kind, state.stage(), state.phase() ^ 1);
    }
  }

  const Context<T, kKind>& c;
  const BwdParams& p;
  const Work& w;
  const int rank;
  PipelineState<q_stages(T, kKind)> q;
  PipelineState<T.sum_stages> q_sum;
  PipelineState<dout_stages(T, kKind)> dout;
  PipelineState<T.sum_stages> dout_sum;
  PipelineState<kStatStages> stats;
  PhasesOf<T, kRaw> raw;
};

}  // namespace fa4::sm100::bwd
