// The loader warp: keys and values of each tile by TMA.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/forward/tile_reader.cuh"
#include "kernels/tile/clear_rows.cuh"

namespace fa4::sm90 {

template <FwdTraits T>
class KvLoader {
 public:
  __device__ explicit KvLoader(const FwdContext<T>& context) : c(context), tiles(context) {}

  // K runs a block ahead of V, also from tile to tile: the consumers multiply a tile's last P by V
  // together with the next tile's Q Kᵀ, if Q has more slots than there are warpgroups.
  // The first round has no tile of its own.
  __device__ void run() {
    QTile tile{.work = {.batch = -1}}, next{};
    int head = 0, next_head = 0;
    do {
      int n = tile.blocks.n_block_max - 1;
#pragma unroll 1
      do {
        const bool last = n <= tile.blocks.n_block_min;
        if (tile.is_valid()) tiles.visit(n);
        if (!last) {
          load_k(tile, head, n - 1);
        } else {
          next = tiles.fetch();
          next_head = next.work.head / c.params.heads.tile_heads_per_kv;
          if (next.is_valid()) load_k(next, next_head, next.blocks.n_block_max - 1);
        }
        if (tile.is_valid()) load_v(tile, head, n);
      } while (--n >= tile.blocks.n_block_min);
      tile = next;
      head = next_head;
    } while (tile.is_valid());
  }

 private:
  // A block of K, or (without keys) a stage of the ring with nothing in it.
  __device__ void load_k(const QTile& tile, int head, int n_block) {
    const Pipeline ring = c.pipeline(kKFull);
    ring.producer_acquire(k);
    if (ptx::elect_sync()) {
      const ptx::SmemAddr to = c.smem_address(c.kSmem.k + k.stage() * k_stage_bytes(T));
      fill<T.head_dim>(c.params.maps.k, to, ring.full_barrier(k.stage()), tile, head, n_block);
    }
    __syncwarp();
    k.advance();
  }

  __device__ void load_v(const QTile& tile, int head, int n_block) {
    const int valid = tile.work.seqlen_k - n_block * T.tile_n;
    const bool clear =
        !reads_keys_once(T) && tile.sees_keys() && valid < T.tile_n && v_has_tails(c.params);
    const Pipeline ring = c.pipeline(kVFull);
    ring.producer_acquire(v);
    const int stage = c.kSmem.v + v.stage() * v_stage_bytes(T);
    const ptx::SmemAddr full = ring.full_barrier(v.stage());
    const ptx::SmemAddr barrier = clear ? c.barrier(kVRaw) : full;
    if (ptx::elect_sync()) {
      fill<T.head_dim_v>(c.params.maps.v, c.smem_address(stage), barrier, tile, head, n_block);
    }
    __syncwarp();
    if (clear) {
      wait(barrier, v_raw.phase());
      v_raw.advance();
      clear_rows<T.tile_n, T.head_dim_v>(c.smem + stage, valid);
      if (ptx::elect_sync()) ptx::mbarrier_arrive(full);
      __syncwarp();
    }
    v.advance();
  }

  // One thread: tile_n rows in slabs, or this CTA's share of them, which goes to the whole cluster.
  // Each CTA's barrier counts the bytes of all shares.
  template <int kHeadDim>
  __device__ void fill(const TensorMap& map, ptx::SmemAddr to, ptx::SmemAddr barrier,
                       const QTile& tile, int head, int n_block) const {
    constexpr int kSlab = slab_columns(kHeadDim), kSlabBytes = T.tile_n * kSlab * kElementBytes;
    if (!tile.sees_keys()) return ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_expect_tx(barrier, num_slabs(kHeadDim) * kSlabBytes);
    const int batch = batch_coordinate(c.params.sequences.cu_seqlens_k, tile.work);
    const int first_row = c.rank() * (T.tile_n / T.cluster);
    const int row = tile.work.offset_k + n_block * T.tile_n + first_row;
#pragma unroll
    for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
      const ptx::SmemAddr at = to + slab * kSlabBytes + first_row * kSlab * kElementBytes;
      if constexpr (T.cluster == 1) {
        ptx::cp_async_bulk_tensor_4d_load(at, &map, barrier, slab * kSlab, head, row, batch,
                                          key_policy<T>());
      } else {
        ptx::cp_async_bulk_tensor_4d_load_multicast(at, &map, barrier, slab * kSlab, head, row,
                                                    batch, (1 << T.cluster) - 1, key_policy<T>());
      }
    }
  }

  const FwdContext<T>& c;
  TileReader<T> tiles;
  PipelineState<T.kv_stages> k, v;
  PipelineState<1> v_raw;
};

}  // namespace fa4::sm90
