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

  __device__ void run() { load_tiles(tiles, *this); }

  // The steps of load_tiles (tile_reader.cuh).
  __device__ void begin(const QTile& tile) {
    const int first_row = c.rank() * (T.tile_n / T.cluster);
    of_k = {tile.work.head / c.params.heads.tile_heads_per_kv,
            tile.work.offset_k + tile.blocks.n_block_max * T.tile_n + first_row,
            batch_coordinate(c.params.sequences.cu_seqlens_k, tile.work), tile.sees_keys()};
  }
  __device__ void pass_to_v() { of_v = of_k; }
  __device__ void load_k() {
    of_k.row -= T.tile_n;
    const Pipeline ring = c.pipeline(kKFull);
    const ptx::SmemAddr to = c.smem_address(c.kSmem.k + k.stage() * k_stage_bytes(T));
    const ptx::SmemAddr full = ring.full_barrier(k.stage());
    ring.producer_acquire(k);
    if (ptx::elect_sync()) fill<T.head_dim>(c.params.maps.k, to, full, of_k);
    __syncwarp();
    k.advance();
  }
  __device__ void load_v(const QTile& tile, int n_block) {
    const int valid = tile.work.seqlen_k - n_block * T.tile_n;
    const bool clear = !reads_keys_once(T) && of_v.exist && valid < T.tile_n &&
                       keys_have_tails(c.params.sequences);
    const Pipeline ring = c.pipeline(kVFull);
    const int stage = c.kSmem.v + v.stage() * v_stage_bytes(T);
    const ptx::SmemAddr full = ring.full_barrier(v.stage());
    const ptx::SmemAddr barrier = clear ? c.barrier(kVRaw) : full;
    ring.producer_acquire(v);
    if (ptx::elect_sync()) {
      fill<T.head_dim_v>(c.params.maps.v, c.smem_address(stage), barrier, of_v);
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

 private:
  // Where TMA finds a block, or this CTA's share of it.
  struct Source {
    int head, row, batch;
    bool exist;  // whether the tile sees keys
  };

  // One thread: tile_n rows in slabs, or this CTA's share of them, which goes to the whole cluster.
  // Each CTA's barrier counts the bytes of all shares. Without keys a stage with nothing in it.
  template <int kHeadDim>
  __device__ void fill(const TensorMap& map, ptx::SmemAddr to, ptx::SmemAddr barrier,
                       const Source& from) const {
    constexpr int kSlab = slab_columns(kHeadDim), kRowBytes = kSlab * kElementBytes;
    constexpr int kSlabBytes = T.tile_n * kRowBytes;
    if (!from.exist) return ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_expect_tx(barrier, num_slabs(kHeadDim) * kSlabBytes);
    const ptx::SmemAddr share = to + c.rank() * (T.tile_n / T.cluster) * kRowBytes;
#pragma unroll
    for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
      const ptx::SmemAddr at = share + slab * kSlabBytes;
      if constexpr (T.cluster == 1) {
        ptx::cp_async_bulk_tensor_4d_load(at, &map, barrier, slab * kSlab, from.head, from.row,
                                          from.batch, key_policy<T>());
      } else {
        ptx::cp_async_bulk_tensor_4d_load_multicast(at, &map, barrier, slab * kSlab, from.head,
                                                    from.row, from.batch, (1 << T.cluster) - 1,
                                                    key_policy<T>());
      }
    }
  }

  const FwdContext<T>& c;
  TileReader<T> tiles;
  Source of_k{}, of_v{};
  PipelineState<T.kv_stages> k, v;
  PipelineState<1> v_raw;
};

}  // namespace fa4::sm90
