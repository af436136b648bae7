// FlashAttention forward for Hopper: one producer warp, two or three consumer warpgroups, wgmma and
// TMA.
//
// Shared memory (fwd_traits.h, smem_layout):
//   Q    tile_m x head_dim, 64 rows a consumer warpgroup      K, V  kv_stages x tile_n rows
//   out  tile_m x head_dim_v, apart from Q or in its place     WorkTile x 2, barriers
//
// Barriers (fwd_traits.h, barriers):
//
//   producer warp                                consumer warpgroups, 64 query rows each
//     scheduler ──── tile_full ─────────────────▶  which tile                ── tile_empty ──▶
//     TMA K block ── k_full[stage] ─────────────▶  S = Q Kᵀ      (wgmma SS)  ── k_empty ─────▶
//     TMA Q ──────── q_full ────────────────────▶                            ── q_empty ─────▶
//     TMA V block ── v_full[stage] ─────────────▶  O += P V      (wgmma RS)  ── v_empty ─────▶
//        └ v_raw ─▶ clears rows past the sequence's end, then v_full
//
// In a warpgroup S of block n is multiplied while P V of block n + 1 is: the softmax of n overlaps
// P V of n + 1. Between warpgroups, ping_pong hands the tensor cores round: one multiplies while
// another exponentiates.
#pragma once

#include "kernels/attention/block_range.h"
#include "kernels/attention/softmax.cuh"
#include "kernels/attention/tile_scheduler.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/sm90/fwd_params.h"
#include "kernels/sm90/fwd_traits.h"
#include "kernels/tile/pipeline.cuh"
#include "kernels/tile/smem_descriptor.cuh"

namespace fa4::sm90 {

// Everything a role needs besides its tile.
template <FwdTraits T>
struct Context {
  static constexpr SmemLayout kSmem = smem_layout(T);
  static constexpr BarrierTable kBarriers = barriers(T);

  const FwdParams& params;
  unsigned char* smem;

  __device__ ptx::SmemAddr at(int offset) const { return ptx::smem_addr(smem) + offset; }
  __device__ ptx::SmemAddr barrier(int kind) const {
    return at(kSmem.barriers + 8 * kBarriers.first(kind));
  }
  __device__ Pipeline pipeline(int full_kind) const {
    return {barrier(full_kind), barrier(full_kind + 1)};
  }
  __device__ WorkTile& tile(int slot) const {
    return *reinterpret_cast<WorkTile*>(smem + kSmem.tiles + slot * kWorkTileBytes);
  }
};
static_assert(sizeof(WorkTile) == kWorkTileBytes);

using TileState = PipelineState<kTileSlots>;
template <FwdTraits T>
using KvState = PipelineState<T.kv_stages>;

// Position in the sequence of a row of the tile (rows of packed heads share one).
template <FwdTraits T>
__device__ inline int row_of(const FwdParams& p, const WorkTile& tile, int row_in_tile) {
  return (tile.m_block * T.tile_m + row_in_tile) / p.group;
}

template <FwdTraits T>
__device__ inline KeyBounds bounds_of(const FwdParams& p, const WorkTile& tile, int row_in_tile) {
  const int position = row_of<T>(p, tile, row_in_tile) + tile.seqlen_k - tile.seqlen_q;
  return key_bounds(position, tile.seqlen_k, p.window_left, p.window_right);
}

template <FwdTraits T>
__device__ inline BlockRange blocks_of(const FwdParams& p, const WorkTile& tile) {
  const int rows = tile.seqlen_q * p.group - tile.m_block * T.tile_m;
  const int last = rows < T.tile_m ? rows - 1 : T.tile_m - 1;
  return block_range(bounds_of<T>(p, tile, 0), bounds_of<T>(p, tile, last), T.tile_n);
}

// ---- producer
// ----------------------------------------------------------------------------------------------------

// One block of K or V: tile_n rows in slabs.
template <FwdTraits T, int kHeadDim>
__device__ inline void load_kv_block(const TensorMap& map, ptx::SmemAddr to, ptx::SmemAddr barrier,
                                     const WorkTile& tile, int kv_head, int batch, int n_block) {
  constexpr int kSlab = slab_columns(kHeadDim);
#pragma unroll
  for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
    ptx::cp_async_bulk_tensor_4d_load(to + slab * T.tile_n * kSlab * kElementBytes, &map, barrier,
                                      slab * kSlab, kv_head, tile.offset_k + n_block * T.tile_n,
                                      batch);
  }
}

template <FwdTraits T>
__device__ inline void load_q(const Context<T>& c, const WorkTile& tile, ptx::SmemAddr barrier,
                              int batch) {
  constexpr int kSlab = slab_columns(T.head_dim);
  const int first_row = tile.m_block * T.tile_m / c.params.group;
  const int warpgroup_rows = 64 / c.params.group;
#pragma unroll
  for (int i = 0; i < consumer_warpgroups(T) * num_slabs(T.head_dim); ++i) {
    const int warpgroup = i / num_slabs(T.head_dim), slab = i % num_slabs(T.head_dim);
    ptx::cp_async_bulk_tensor_4d_load(
        c.at(c.kSmem.q + i * 64 * kSlab * kElementBytes), &c.params.q, barrier, slab * kSlab,
        tile.head * c.params.group, tile.offset_q + first_row + warpgroup * warpgroup_rows, batch);
  }
}

// Rows [first, tile_n) of a block of V may hold anything (the next sequence, unused cache): makes
// them 0, since a probability of 0 does not silence NaN.
template <FwdTraits T>
__device__ inline void clear_tail(const Context<T>& c, int stage, int first) {
  constexpr int kRowBytes = slab_columns(T.head_dim_v) * kElementBytes;
  constexpr int kChunks = kRowBytes / 16;
  unsigned char* block = c.smem + c.kSmem.v + stage * v_stage_bytes(T);
  const int chunks = (T.tile_n - first) * kChunks;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < chunks * num_slabs(T.head_dim_v); i += 32) {
    const int slab = i / chunks, chunk = i % chunks;
    *reinterpret_cast<uint4*>(block + (slab * T.tile_n + first) * kRowBytes + chunk * 16) =
        uint4{0, 0, 0, 0};
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

// What the producer warp remembers from tile to tile.
template <FwdTraits T>
struct ProducerState {
  KvState<T> k, v;
  PipelineState<1> q, v_raw;
};

template <FwdTraits T>
__device__ inline void produce_v(const Context<T>& c, const WorkTile& tile, int kv_head, int batch,
                                 int n_block, bool has_garbage, ProducerState<T>& state) {
  const Pipeline v = c.pipeline(kVFull);
  const ptx::SmemAddr to = c.at(c.kSmem.v + state.v.stage() * v_stage_bytes(T));
  const int valid = tile.seqlen_k - n_block * T.tile_n;
  const bool clear = has_garbage && valid < T.tile_n;
  v.producer_acquire(state.v);
  const ptx::SmemAddr barrier = clear ? c.barrier(kVRaw) : v.full_barrier(state.v.stage());
  if (ptx::elect_sync()) {
    ptx::mbarrier_arrive_expect_tx(barrier, v_stage_bytes(T));
    load_kv_block<T, T.head_dim_v>(c.params.v, to, barrier, tile, kv_head, batch, n_block);
  }
  __syncwarp();
  if (clear) {
    wait(barrier, state.v_raw.phase());
    state.v_raw.advance();
    clear_tail(c, state.v.stage(), valid);
    if (ptx::elect_sync()) ptx::mbarrier_arrive(v.full_barrier(state.v.stage()));
    __syncwarp();
  }
  state.v.advance();
}

template <FwdTraits T>
__device__ inline void produce_k(const Context<T>& c, const WorkTile& tile, int kv_head, int batch,
                                 int n_block, ProducerState<T>& state) {
  const Pipeline k = c.pipeline(kKFull);
  k.producer_acquire(state.k);
  if (ptx::elect_sync()) {
    const ptx::SmemAddr barrier = k.full_barrier(state.k.stage());
    ptx::mbarrier_arrive_expect_tx(barrier, k_stage_bytes(T));
    load_kv_block<T, T.head_dim>(c.params.k, c.at(c.kSmem.k + state.k.stage() * k_stage_bytes(T)),
                                 barrier, tile, kv_head, batch, n_block);
  }
  __syncwarp();
  state.k.advance();
}

// The loads of one tile: K, Q, then V of each block behind K of the next.
template <FwdTraits T>
__device__ inline void produce_tile(const Context<T>& c, const WorkTile& tile,
                                    ProducerState<T>& state) {
  const FwdParams& p = c.params;
  const BlockRange blocks = blocks_of<T>(p, tile);
  if (blocks.n_block_max == blocks.n_block_min) return;
  const int kv_head = tile.head * p.group / (p.heads_q / p.heads_kv);
  const int batch_q = p.cu_seqlens_q == nullptr ? tile.batch : 0;
  const int batch_k = p.cu_seqlens_k == nullptr ? tile.batch : 0;
  const bool has_garbage = p.cu_seqlens_k != nullptr || p.seqused_k != nullptr;

  int n = blocks.n_block_max - 1;
  produce_k(c, tile, kv_head, batch_k, n, state);
  const Pipeline q = c.pipeline(kQFull);
  q.producer_acquire(state.q);
  if (ptx::elect_sync()) {
    ptx::mbarrier_arrive_expect_tx(q.full, q_bytes(T));
    load_q(c, tile, q.full, batch_q);
  }
  __syncwarp();
  state.q.advance();
#pragma unroll 1
  for (; n > blocks.n_block_min; --n) {
    produce_k(c, tile, kv_head, batch_k, n - 1, state);
    produce_v(c, tile, kv_head, batch_k, n, has_garbage, state);
  }
  produce_v(c, tile, kv_head, batch_k, n, has_garbage, state);
}

template <FwdTraits T>
__device__ inline void producer(const Context<T>& c) {
  TileScheduler<T.tile_m> scheduler(c.params);
  const Pipeline tiles = c.pipeline(kTileFull);
  ProducerState<T> state;
#pragma unroll 1
  for (TileState slot;; slot.advance()) {
    const WorkTile tile = scheduler.next();
    tiles.producer_acquire(slot);
    if (ptx::elect_sync()) {
      c.tile(slot.stage()) = tile;
      ptx::mbarrier_arrive(tiles.full_barrier(slot.stage()));
    }
    __syncwarp();
    if (tile.batch < 0) return;
    produce_tile(c, tile, state);
  }
}

// ---- consumers
// ---------------------------------------------------------------------------------------------------

// Named barriers: 0 is __syncthreads.
enum NamedBarrier { kTurn = 1, kEpilogue = 4 };  // + warpgroup

// The consumer warpgroups' turns at the tensor cores.
template <FwdTraits T>
__device__ inline void take_turn(int warpgroup) {
  if constexpr (T.ping_pong) ptx::barrier_sync(kTurn + warpgroup, 2 * kWarpgroupThreads);
}
template <FwdTraits T>
__device__ inline void pass_turn(int warpgroup) {
  constexpr int kCount = consumer_warpgroups(T);
  if constexpr (T.ping_pong) {
    ptx::barrier_arrive(kTurn + (warpgroup + 1 == kCount ? 0 : warpgroup + 1),
                        2 * kWarpgroupThreads);
  }
}

template <FwdTraits T>
struct ConsumerState {
  KvState<T> k, v;
  PipelineState<1> q;
};

// One consumer warpgroup's registers and the steps on them, for one tile.
template <FwdTraits T>
struct Consumer {
  using QkDescriptor = SmemDescriptor<slab_columns(T.head_dim)>;
  using VDescriptor = SmemDescriptor<slab_columns(T.head_dim_v)>;
  static constexpr int kScores = T.tile_n / 2;
  static constexpr int kOutputs = T.head_dim_v / 2;
  static constexpr int kMmaK = 16;

  const Context<T>& c;
  const int warpgroup;
  const int lane;  // in the warpgroup
  ConsumerState<T>& state;

  float rS[kScores];
  uint32_t rP[T.tile_n / kMmaK][4];
  float rO[kOutputs];
  OnlineSoftmax softmax;
  KeyBounds bounds[2];  // of this thread's two rows

  __device__ bool leads_warp() const { return lane % 32 == 0; }
  __device__ int row(int r) const {
    return 64 * warpgroup + 16 * (lane / 32) + lane % 32 / 4 + 8 * r;
  }

  // S = Q Kᵀ
  __device__ void issue_qk() {
    constexpr int kSlab = slab_columns(T.head_dim), kSteps = kSlab / kMmaK;
    const uint64_t q =
        QkDescriptor::k_major(c.at(c.kSmem.q + warpgroup * 64 * T.head_dim * kElementBytes));
    const uint64_t k = QkDescriptor::k_major(c.at(c.kSmem.k + state.k.stage() * k_stage_bytes(T)));
#pragma unroll
    for (int i = 0; i < T.head_dim / kMmaK; ++i) {
      const int slab = i / kSteps, column_bytes = i % kSteps * kMmaK * kElementBytes;
      Wgmma::ss(rS, q + QkDescriptor::offset(slab * 64 * kSlab * kElementBytes + column_bytes),
                k + QkDescriptor::offset(slab * T.tile_n * kSlab * kElementBytes + column_bytes),
                i > 0);
    }
    ptx::wgmma_commit_group();
  }

  // O += P V
  __device__ void issue_pv() {
    constexpr int kSlabBytes = T.tile_n * slab_columns(T.head_dim_v) * kElementBytes;
    const uint64_t v =
        VDescriptor::mn_major(c.at(c.kSmem.v + state.v.stage() * v_stage_bytes(T)), kSlabBytes);
#pragma unroll
    for (int i = 0; i < T.tile_n / kMmaK; ++i) {
      WgmmaPv::rs(rO, rP[i], v + VDescriptor::offset(i * 2 * VDescriptor::kEightRows));
    }
    ptx::wgmma_commit_group();
  }

  __device__ void mask(int n_block) {
    const int column = n_block * T.tile_n + 2 * (lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int begin = bounds[r].begin - column, end = bounds[r].end - column;
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const int at = i / 4 * 8 + i % 2;
        if (i / 2 % 2 == r && (at < begin || at >= end)) rS[i] = -kInfinity;
      }
    }
  }

  __device__ void cap_scores() {
    if constexpr (T.softcap) {
#pragma unroll
      for (int i = 0; i < kScores; ++i)
        rS[i] = c.params.softcap * ptx::tanh_approx(rS[i] * c.params.scale_over_softcap);
    }
  }

  // The accumulator layout of two 8-column groups is the A operand of one 16-row step.
  __device__ void pack_p() {
#pragma unroll
    for (int i = 0; i < T.tile_n / kMmaK; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        rP[i][j] = pack<T.element>(rS[8 * i + 2 * j], rS[8 * i + 2 * j + 1]);
    }
  }

  __device__ void rescale_o() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) rO[i] *= softmax.acc_scale[i / 2 % 2];
  }

  __device__ void release_k() {
    if (leads_warp()) c.pipeline(kKFull).consumer_release(state.k);
    state.k.advance();
  }
  __device__ void release_v() {
    if (leads_warp()) c.pipeline(kVFull).consumer_release(state.v);
    state.v.advance();
  }
  __device__ void release_q() {
    if (leads_warp()) c.pipeline(kQFull).consumer_release(state.q);
    state.q.advance();
  }

  __device__ void first_block(int n_block) {
    c.pipeline(kKFull).consumer_wait(state.k);
    take_turn<T>(warpgroup);
    ptx::wgmma_fence();
    issue_qk();
    pass_turn<T>(warpgroup);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rS);
    release_k();
    cap_scores();
    mask(n_block);
    softmax.first_block(rS, c.params.scale_log2);
    pack_p();
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) rO[i] = 0.0f;
  }

  // Scores of `n_block` and their softmax, under the product of the block before.
  template <bool kMasked>
  __device__ void next_block(int n_block) {
    c.pipeline(kKFull).consumer_wait(state.k);
    take_turn<T>(warpgroup);
    ptx::wgmma_fence();
    issue_qk();
    c.pipeline(kVFull).consumer_wait(state.v);
    issue_pv();
    pass_turn<T>(warpgroup);
    ptx::wgmma_wait_group<1>();
    ptx::fence_registers(rS);
    release_k();
    cap_scores();
    if constexpr (kMasked) mask(n_block);
    const bool rescale = softmax.next_block(rS, c.params.scale_log2);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rO);
    release_v();
    if (rescale) rescale_o();
    pack_p();
  }

  __device__ void last_product() {
    c.pipeline(kVFull).consumer_wait(state.v);
    ptx::wgmma_fence();
    issue_pv();
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rO);
    release_v();
  }

 private:
  using Wgmma = ptx::Wgmma<T.tile_n, T.element>;
  using WgmmaPv = ptx::Wgmma<T.head_dim_v, T.element>;

 public:
  // O in the registers of this warpgroup to its 64 rows of shared memory, in the swizzle that TMA
  // undoes.
  __device__ void stage_out(unsigned char* out_rows) const {
    constexpr int kSlab = slab_columns(T.head_dim_v), kRowBytes = kSlab * kElementBytes;
    const int matrix = lane % 32 / 8;
    const int smem_row = 16 * (lane / 32) + lane % 8 + 8 * (matrix & 1);
    const int swizzle = kSlab == 64 ? smem_row & 7 : smem_row / 2 & 3;
    const ptx::SmemAddr row_addr = ptx::smem_addr(out_rows) + smem_row * kRowBytes;
#pragma unroll
    for (int i = 0; i < T.head_dim_v / 16; ++i) {
      const int slab = 16 * i / kSlab, chunk = 2 * (i % (kSlab / 16)) + matrix / 2;
      ptx::stmatrix_x4(row_addr + slab * 64 * kRowBytes + 16 * (chunk ^ swizzle),
                       pack<T.element>(rO[8 * i], rO[8 * i + 1]),
                       pack<T.element>(rO[8 * i + 2], rO[8 * i + 3]),
                       pack<T.element>(rO[8 * i + 4], rO[8 * i + 5]),
                       pack<T.element>(rO[8 * i + 6], rO[8 * i + 7]));
    }
  }

  __device__ void normalise_and_store_lse(const WorkTile& tile) {
    const FwdParams& p = c.params;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int packed_row = tile.m_block * T.tile_m + row(r);
      const int position = packed_row / p.group, head = tile.head * p.group + packed_row % p.group;
      const bool inside = position < tile.seqlen_q;
      const float sink = p.sink != nullptr && inside ? p.sink[head] * kLog2E : -kInfinity;
      float lse;
      const float factor = softmax.finish(r, p.scale_log2, sink, &lse);
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) {
        if (i / 2 % 2 == r) rO[i] = factor == 0.0f ? 0.0f : rO[i] * factor;
      }
      if (p.lse != nullptr && inside && lane % 4 == 0) {
        const int64_t index =
            p.cu_seqlens_q == nullptr
                ? (static_cast<int64_t>(tile.batch) * p.heads_q + head) * p.seqlen_q + position
                : static_cast<int64_t>(head) * p.total_q + tile.offset_q + position;
        p.lse[index] = lse;
      }
    }
  }

  // Rows of a tile that reaches past its packed sequence: copied by all threads, 16 bytes each,
  // those inside only.
  __device__ void copy_rows(const WorkTile& tile, const unsigned char* out_rows) const {
    constexpr int kSlab = slab_columns(T.head_dim_v), kRowBytes = kSlab * kElementBytes,
                  kChunks = kRowBytes / 16;
    const FwdParams& p = c.params;
#pragma unroll 1
    for (int i = lane; i < 64 * num_slabs(T.head_dim_v) * kChunks; i += kWarpgroupThreads) {
      const int chunk = i % kChunks, slab = i / kChunks % num_slabs(T.head_dim_v);
      const int smem_row = i / (kChunks * num_slabs(T.head_dim_v));
      const int packed_row = tile.m_block * T.tile_m + 64 * warpgroup + smem_row;
      const int position = packed_row / p.group, head = tile.head * p.group + packed_row % p.group;
      const int column = slab * kSlab + chunk * 8;
      const int swizzle = kSlab == 64 ? smem_row & 7 : smem_row / 2 & 3;
      if (position < tile.seqlen_q && column < p.head_dim_v) {
        const int64_t to = int64_t{tile.offset_q + position} * p.out_stride_seqlen +
                           head * p.out_stride_head + column;
        *reinterpret_cast<uint4*>(static_cast<unsigned char*>(p.out_data) + to * kElementBytes) =
            *reinterpret_cast<const uint4*>(out_rows + (slab * 64 + smem_row) * kRowBytes +
                                            16 * (chunk ^ swizzle));
      }
    }
  }

  __device__ void store_out(const WorkTile& tile) {
    constexpr int kSlab = slab_columns(T.head_dim_v);
    const FwdParams& p = c.params;
    unsigned char* out_rows = c.smem + c.kSmem.out + warpgroup * 64 * T.head_dim_v * kElementBytes;
    if (lane == 0) ptx::cp_async_bulk_wait_group_read<0>();  // this place's last store
    ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);
    stage_out(out_rows);
    ptx::fence_proxy_async_shared();
    ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);

    const int first_row = (tile.m_block * T.tile_m + 64 * warpgroup) / p.group;
    const bool by_tma = p.cu_seqlens_q == nullptr || first_row + 64 / p.group <= tile.seqlen_q;
    if (!by_tma) {
      copy_rows(tile, out_rows);
    } else if (lane == 0) {
#pragma unroll
      for (int slab = 0; slab < num_slabs(T.head_dim_v); ++slab) {
        ptx::cp_async_bulk_tensor_4d_store(
            &p.out, ptx::smem_addr(out_rows) + slab * 64 * kSlab * kElementBytes, slab * kSlab,
            tile.head * p.group, tile.offset_q + first_row,
            p.cu_seqlens_q == nullptr ? tile.batch : 0);
      }
      ptx::cp_async_bulk_commit_group();
    }
  }

  __device__ void run(const WorkTile& tile) {
    const FwdParams& p = c.params;
    const BlockRange blocks = blocks_of<T>(p, tile);
    const bool any = blocks.n_block_max > blocks.n_block_min;
    bounds[0] = bounds_of<T>(p, tile, row(0));
    bounds[1] = bounds_of<T>(p, tile, row(1));
    if (any) {
      int n = blocks.n_block_max - 1;
      c.pipeline(kQFull).consumer_wait(state.q);
      first_block(n--);
#pragma unroll 1
      for (; n >= blocks.n_block_min; --n) {
        if (n >= blocks.full_end || n < blocks.full_begin) {
          next_block<true>(n);
        } else {
          next_block<false>(n);
        }
      }
      if constexpr (!Context<T>::kSmem.out_aliases_q) release_q();
      last_product();
    } else {
      softmax = {{-kInfinity, -kInfinity}, {0.0f, 0.0f}, {1.0f, 1.0f}};
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) rO[i] = 0.0f;
    }
    normalise_and_store_lse(tile);
    store_out(tile);
    if constexpr (Context<T>::kSmem.out_aliases_q) {
      if (any) {
        if (lane == 0) ptx::cp_async_bulk_wait_group_read<0>();
        ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);
        release_q();
      }
    }
  }
};

template <FwdTraits T>
__device__ inline void consumer(const Context<T>& c, int warpgroup) {
  const Pipeline tiles = c.pipeline(kTileFull);
  ConsumerState<T> state;
  const int lane = threadIdx.x % kWarpgroupThreads;
  if (warpgroup == consumer_warpgroups(T) - 1)
    pass_turn<T>(warpgroup);  // the first turn is warpgroup 0's
#pragma unroll 1
  for (TileState slot;; slot.advance()) {
    tiles.consumer_wait(slot);
    const WorkTile tile = c.tile(slot.stage());
    __syncwarp();
    if (lane % 32 == 0) tiles.consumer_release(slot);
    if (tile.batch < 0) break;
    Consumer<T>{c, warpgroup, lane, state}.run(tile);
  }
}

template <FwdTraits T>
__device__ inline void initialise_barriers(const Context<T>& c) {
  constexpr BarrierTable kTable = barriers(T);
#pragma unroll
  for (int kind = 0; kind < kNumBarrierKinds; ++kind) {
    for (int stage = 0; stage < kTable.rows[kind].stages; ++stage) {
      ptx::mbarrier_init(c.barrier(kind) + 8 * stage, kTable.rows[kind].arrivals);
    }
  }
  ptx::fence_mbarrier_init();
}

}  // namespace fa4::sm90

namespace fa4 {

template <FwdTraits T>
__global__ void __launch_bounds__(sm90::num_threads(T), 1)
    fwd_sm90(const __grid_constant__ FwdParams params) {
  static_assert(sm90::why_not(T) == nullptr);
  extern __shared__ unsigned char smem_base[];
  unsigned char* smem = smem_base + (-ptx::smem_addr(smem_base).value & 1023u);
  const sm90::Context<T> context{params, smem};
  if (threadIdx.x == 0) sm90::initialise_barriers(context);
  __syncthreads();

  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / sm90::kWarpgroupThreads, 0);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<sm90::register_split(T).producer>();
    if (threadIdx.x < 32) sm90::producer(context);
  } else {
    ptx::setmaxnreg_inc<sm90::register_split(T).consumer>();
    sm90::consumer(context, warpgroup - 1);
  }
}

}  // namespace fa4
