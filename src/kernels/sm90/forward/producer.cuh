// The producer warp: hands out tiles and loads Q, K and V.
#pragma once

#include "kernels/output/rows.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/forward/context.cuh"
#include "kernels/tile/clear_rows.cuh"

namespace fa4::sm90 {

// Where a tile's keys and values are, for TMA.
struct KvPlace {
  int head;
  int offset;
  int batch;
};

// One tile as the producer sees it.
struct LoadTile : QTile {
  KvPlace kv;
};

// One block of K or V: tile_n rows in slabs.
template <FwdTraits T, int kHeadDim>
__device__ inline void load_kv_block(const FwdContext<T>& c, const TensorMap& map, ptx::SmemAddr to,
                                     ptx::SmemAddr barrier, const KvPlace& place, int n_block) {
  constexpr int kSlab = slab_columns(kHeadDim);
#pragma unroll
  for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
    ptx::cp_async_bulk_tensor_4d_load(to + slab * T.tile_n * kSlab * kElementBytes, &map, barrier,
                                      slab * kSlab, place.head, place.offset + n_block * T.tile_n,
                                      place.batch);
  }
}

template <FwdTraits T>
__device__ inline void load_q(const FwdContext<T>& c, const WorkTile& tile, ptx::SmemAddr to,
                              ptx::SmemAddr barrier) {
  constexpr int kSlab = slab_columns(T.head_dim);
  const FwdParams& p = c.params;
#pragma unroll
  for (int i = 0; i < consumer_warpgroups(T) * num_slabs(T.head_dim); ++i) {
    const int warpgroup = i / num_slabs(T.head_dim), slab = i % num_slabs(T.head_dim);
    const int row = packed_row_of<T>(tile, 64 * warpgroup);
    ptx::cp_async_bulk_tensor_5d_load(to + i * 64 * kSlab * kElementBytes, &p.maps.q, barrier,
                                      slab * kSlab, head_of_group(p.heads, row), tile.head,
                                      tile.offset_q + (row >> p.heads.group_log2),
                                      batch_coordinate(p.sequences.cu_seqlens_q, tile));
  }
}

// What the producer warp remembers from tile to tile.
template <FwdTraits T>
struct ProducerState {
  PipelineState<T.q_stages> q;
  PipelineState<T.kv_stages> k, v;
  PipelineState<1> v_raw;
};

// A block of K, or (without keys) a stage of the ring with nothing in it.
template <FwdTraits T>
__device__ inline void produce_k(const FwdContext<T>& c, const KvPlace& place, bool has_keys,
                                 int n_block, ProducerState<T>& state) {
  const Pipeline k = c.pipeline(kKFull);
  k.producer_acquire(state.k);
  if (ptx::elect_sync()) {
    const ptx::SmemAddr barrier = k.full_barrier(state.k.stage());
    if (has_keys) {
      ptx::mbarrier_arrive_expect_tx(barrier, k_stage_bytes(T));
      load_kv_block<T, T.head_dim>(c, c.params.maps.k,
                                   c.smem_address(c.kSmem.k + state.k.stage() * k_stage_bytes(T)),
                                   barrier, place, n_block);
    } else {
      ptx::mbarrier_arrive(barrier);
    }
  }
  __syncwarp();
  state.k.advance();
}

template <FwdTraits T>
__device__ inline void produce_v(const FwdContext<T>& c, const LoadTile& tile, int n_block,
                                 ProducerState<T>& state) {
  const FwdParams& p = c.params;
  const Pipeline v = c.pipeline(kVFull);
  const int valid = tile.work.seqlen_k - n_block * T.tile_n;
  const bool clear = !T.parts && tile.sees_keys() && valid < T.tile_n && v_has_tails(p);
  v.producer_acquire(state.v);
  const ptx::SmemAddr barrier = clear ? c.barrier(kVRaw) : v.full_barrier(state.v.stage());
  if (ptx::elect_sync()) {
    if (tile.sees_keys()) {
      ptx::mbarrier_arrive_expect_tx(barrier, v_stage_bytes(T));
      load_kv_block<T, T.head_dim_v>(c, p.maps.v,
                                     c.smem_address(c.kSmem.v + state.v.stage() * v_stage_bytes(T)),
                                     barrier, tile.kv, n_block);
    } else {
      ptx::mbarrier_arrive(barrier);
    }
  }
  __syncwarp();
  if (clear) {
    wait(barrier, state.v_raw.phase());
    state.v_raw.advance();
    clear_rows<T.tile_n, T.head_dim_v>(c.smem + c.kSmem.v + state.v.stage() * v_stage_bytes(T),
                                       valid);
    if (ptx::elect_sync()) ptx::mbarrier_arrive(v.full_barrier(state.v.stage()));
    __syncwarp();
  }
  state.v.advance();
}

template <FwdTraits T>
__device__ inline void produce_q(const FwdContext<T>& c, const LoadTile& tile,
                                 ProducerState<T>& state) {
  const Pipeline q = c.pipeline(kQFull);
  q.producer_acquire(state.q);
  if (ptx::elect_sync()) {
    const ptx::SmemAddr barrier = q.full_barrier(state.q.stage());
    ptx::mbarrier_arrive_expect_tx(barrier, q_bytes(T));
    load_q(c, tile.work, c.smem_address(c.kSmem.q + state.q.stage() * q_bytes(T)), barrier);
  }
  __syncwarp();
  state.q.advance();
}

template <FwdTraits T>
__device__ inline LoadTile next_tile(const FwdContext<T>& c, Scheduler<T>& scheduler,
                                     PipelineState<kTileSlots>& slot) {
  LoadTile tile{{scheduler.next(), {}}, {}};
  if (tile.work.batch >= 0) {
    tile.blocks = block_range_of<T>(c.params, tile.work);
    tile.kv = {tile.work.head / c.params.heads.tile_heads_per_kv, tile.work.offset_k,
               batch_coordinate(c.params.sequences.cu_seqlens_k, tile.work)};
  }
  const Pipeline tiles = c.pipeline(kTileFull);
  tiles.producer_acquire(slot);
  if (ptx::elect_sync()) {
    c.tile(slot.stage()) = tile;
    ptx::mbarrier_arrive(tiles.full_barrier(slot.stage()));
  }
  __syncwarp();
  slot.advance();
  return tile;
}

// K runs a block ahead of V, also from tile to tile: the consumers multiply a tile's last P by V
// together with the next tile's Q Kᵀ, if Q has two places (if it has one, out is still in it). A
// tile that sees no keys still loads Q, whose place out takes. The first round has no tile of its
// own.
template <FwdTraits T>
__device__ inline void producer(const FwdContext<T>& c) {
  Scheduler<T> scheduler(c.params);
  PipelineState<kTileSlots> slot;
  ProducerState<T> state;
  LoadTile tile{{{.batch = -1}, {}}, {}}, next{};
  do {
    int n = tile.blocks.n_block_max - 1;
#pragma unroll 1
    do {
      const bool last = n <= tile.blocks.n_block_min;
      if (last) next = next_tile(c, scheduler, slot);
      const bool has_next = last && next.work.batch >= 0;
      if (!last || has_next) {
        const KvPlace ahead = last ? next.kv : tile.kv;
        produce_k(c, ahead, !last || next.sees_keys(), last ? next.blocks.n_block_max - 1 : n - 1,
                  state);
      }
      if (T.q_stages > 1 && has_next) produce_q(c, next, state);
      if (tile.work.batch >= 0) produce_v(c, tile, n, state);
      if (T.q_stages == 1 && has_next) produce_q(c, next, state);
    } while (--n >= tile.blocks.n_block_min);
    tile = next;
  } while (tile.work.batch >= 0);
  ptx::griddepcontrol_launch_dependents();  // what is left takes no more loads
}

}  // namespace fa4::sm90
