// The load warp: Q tiles, and K and V blocks through one ring, in the order of their use.
#pragma once

#include "kernels/ptx/tma.cuh"
#include "kernels/sm100/fwd_context.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
class Loader {
 public:
  __device__ explicit Loader(const Context<T>& context) : c(context), p(context.params) {}

  __device__ void run() {
    TileReader<T> tiles(c);
#pragma unroll 1
    for (tile = tiles.next(); tile.is_valid(); tile = tiles.next()) {
      const Blocks blocks = blocks_of<T>(tile);
#pragma unroll 1
      for (int n = blocks.n_block_max - 1; n >= blocks.n_block_min; --n) {
#pragma unroll
        for (int i = 0; i < T.q_tiles; ++i) {
          if (tile.sees_keys(i) && n == tile.blocks[i].n_block_max - 1) load_q(i);
        }
        load_k(n);
        load_v(n);
      }
    }
    drain();
  }

 private:
  static constexpr int kQkSlab = slab_columns(T.head_dim);
  static constexpr int kVSlab = slab_columns(T.head_dim_v);

  // Sequences of a packed tensor are one batch to TMA.
  __device__ int batch_coordinate(const int32_t* cu_seqlens) const {
    return cu_seqlens == nullptr ? tile.work.batch : 0;
  }
  __device__ int kv_head() const { return tile.work.head / p.tile_heads_per_kv; }
  __device__ ptx::SmemAddr kv_place() const {
    return c.at(c.kSmem.kv + kv.stage() * kv_stage_bytes(T));
  }

  __device__ void load_q(int q_tile) {
    wait(c.barrier(kQEmpty, q_tile), q_phase[q_tile] ^ 1);
    q_phase[q_tile] ^= 1;
    if (ptx::elect_sync()) {
      const ptx::SmemAddr barrier = c.barrier(kQFull, q_tile);
      ptx::mbarrier_arrive_expect_tx(barrier, q_tile_bytes(T));
      const int position = tile.work.offset_q + (first_row<T>(tile.work, q_tile) >> p.group_log2);
#pragma unroll
      for (int slab = 0; slab < num_slabs(T.head_dim); ++slab) {
        ptx::cp_async_bulk_tensor_4d_load(
            c.at(c.kSmem.q + q_tile * q_tile_bytes(T) + slab * kTileRows * kQkSlab * kElementBytes),
            &p.q, barrier, slab * kQkSlab, tile.work.head << p.group_log2, position,
            batch_coordinate(p.cu_seqlens_q));
      }
    }
    __syncwarp();
  }

  __device__ void load_k(int n) {
    const Pipeline ring = c.pipeline(kKvFull);
    ring.producer_acquire(kv);
    if (ptx::elect_sync()) {
      const ptx::SmemAddr barrier = ring.full_barrier(kv.stage());
      ptx::mbarrier_arrive_expect_tx(barrier, k_bytes(T));
      load_block<T.head_dim>(p.k, barrier, n);
    }
    __syncwarp();
    kv.advance();
  }

  // Rows past the sequence's end may hold anything where TMA does not fill them with zeros.
  __device__ void load_v(int n) {
    const Pipeline ring = c.pipeline(kKvFull);
    const int valid = tile.work.seqlen_k - n * kTileN;
    const bool clear = valid < kTileN && (p.cu_seqlens_k != nullptr || p.seqused_k != nullptr);
    ring.producer_acquire(kv);
    if (ptx::elect_sync()) {
      const ptx::SmemAddr barrier = clear ? c.barrier(kVRaw) : ring.full_barrier(kv.stage());
      ptx::mbarrier_arrive_expect_tx(barrier, v_bytes(T));
      load_block<T.head_dim_v>(p.v, barrier, n);
    }
    __syncwarp();
    if (clear) {
      wait(c.barrier(kVRaw), v_raw_phase);
      v_raw_phase ^= 1;
      clear_tail(valid);
      if (ptx::elect_sync()) ptx::mbarrier_arrive(ring.full_barrier(kv.stage()));
      __syncwarp();
    }
    kv.advance();
  }

  // Until everything loaded was used: the tensor core's last commits must find the CTA alive.
  __device__ void drain() {
    const Pipeline ring = c.pipeline(kKvFull);
#pragma unroll 1
    for (int i = 0; i < T.kv_stages; ++i) {
      ring.producer_acquire(kv);
      kv.advance();
    }
#pragma unroll
    for (int i = 0; i < T.q_tiles; ++i) wait(c.barrier(kQEmpty, i), q_phase[i] ^ 1);
  }

  template <int kHeadDim>
  __device__ void load_block(const TensorMap& map, ptx::SmemAddr barrier, int n) const {
    constexpr int kSlab = slab_columns(kHeadDim);
#pragma unroll
    for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
      ptx::cp_async_bulk_tensor_4d_load(
          kv_place() + slab * kTileN * kSlab * kElementBytes, &map, barrier, slab * kSlab,
          kv_head(), tile.work.offset_k + n * kTileN, batch_coordinate(p.cu_seqlens_k));
    }
  }

  // Rows [first, kTileN) of the block of V at the ring's stage become 0: a probability of 0 does
  // not silence NaN.
  __device__ void clear_tail(int first) const {
    constexpr int kRowBytes = kVSlab * kElementBytes, kRowChunks = kRowBytes / 16;
    unsigned char* block = c.smem + c.kSmem.kv + kv.stage() * kv_stage_bytes(T);
    const int chunks = (kTileN - first) * kRowChunks;
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < chunks * num_slabs(T.head_dim_v); i += 32) {
      const int slab = i / chunks, chunk = i % chunks;
      *reinterpret_cast<uint4*>(block + (slab * kTileN + first) * kRowBytes + chunk * 16) =
          uint4{0, 0, 0, 0};
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
  }

  const Context<T>& c;
  const FwdParams& p;
  Tile tile;
  PipelineState<T.kv_stages> kv;
  uint32_t q_phase[2] = {0, 0};
  uint32_t v_raw_phase = 0;
};

}  // namespace fa4::sm100
