// A consumer warpgroup: 64 query rows of each tile, from the first Q Kᵀ to the last store of out.
#pragma once

#include "kernels/attention/mask.cuh"
#include "kernels/attention/softcap.cuh"
#include "kernels/attention/softmax.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/sm90/fwd_context.cuh"
#include "kernels/sm90/fwd_epilogue.cuh"
#include "kernels/tile/smem_descriptor.cuh"

namespace fa4::sm90 {

// The consumer warpgroups' turns at the tensor cores.
template <FwdTraits T>
__device__ inline void take_turn(int warpgroup) {
  ptx::barrier_sync(kTurn + warpgroup, 2 * kWarpgroupThreads);
}
template <FwdTraits T>
__device__ inline void pass_turn(int warpgroup) {
  constexpr int kCount = consumer_warpgroups(T);
  const int next = warpgroup + 1 == kCount ? 0 : warpgroup + 1;
  ptx::barrier_arrive(kTurn + next, 2 * kWarpgroupThreads);
}

template <FwdTraits T>
class Consumer {
 public:
  __device__ Consumer(const Context<T>& context, int warpgroup)
      : c(context), warpgroup(warpgroup), lane(threadIdx.x % kWarpgroupThreads) {}

  __device__ void run() {
    if (warpgroup == consumer_warpgroups(T) - 1) pass_turn<T>(warpgroup);  // 0 has the first turn
    WorkTile tile = fetch_tile();
    if (tile.batch < 0) return;
    BlockRange blocks = wait_first(tile);
    take_turn<T>(warpgroup);
    issue_qk();
    pass_turn<T>(warpgroup);
    wait_scores();
#pragma unroll 1
    for (;;) {
      const int out_stage = q_stage;
      attend(tile, blocks);
      const bool any = blocks.n_block_max > blocks.n_block_min;
      if (any) c.pipeline(kVFull).consumer_wait(v);
      const WorkTile next = fetch_tile();
      if constexpr (T.q_stages > 1) {  // the next tile's first product runs under this epilogue
        blocks = wait_first(next);
        take_turn<T>(warpgroup);
        issue_pv();
        issue_qk();
        pass_turn<T>(warpgroup);
        ptx::wgmma_wait_group<1>();
      } else {
        issue_pv();
        ptx::wgmma_wait_group<0>();
      }
      ptx::fence_registers(rO);
      if (any) release(c.pipeline(kVFull), v);
      store(tile, out_stage);
      if constexpr (T.q_stages == 1) {
        release_q();
        blocks = wait_first(next);
        take_turn<T>(warpgroup);
        issue_qk();
        pass_turn<T>(warpgroup);
      }
      wait_scores();
      if (next.batch < 0) break;
      tile = next;
    }
    release_q();  // shared memory outlives the last store's reads
  }

 private:
  using Wgmma = ptx::Wgmma<T.tile_n, T.element>;
  using WgmmaPv = ptx::Wgmma<T.head_dim_v, T.element>;
  using QkDescriptor = SmemDescriptor<slab_columns(T.head_dim)>;
  using VDescriptor = SmemDescriptor<slab_columns(T.head_dim_v)>;
  static constexpr int kScores = T.tile_n / 2;
  static constexpr int kOutputs = T.head_dim_v / 2;
  static constexpr int kMmaK = 16;

  __device__ int row(int r) const {
    return 64 * warpgroup + 16 * (lane / 32) + lane % 32 / 4 + 8 * r;
  }

  template <int kStages>
  __device__ void release(const Pipeline& pipeline, PipelineState<kStages>& state) {
    if (lane % 32 == 0) pipeline.consumer_release(state);
    state.advance();
  }

  __device__ WorkTile fetch_tile() {
    const Pipeline tiles = c.pipeline(kTileFull);
    tiles.consumer_wait(slot);
    const WorkTile tile = c.tile(slot.stage());
    __syncwarp();
    release(tiles, slot);
    return tile;
  }

  // S = Q Kᵀ
  __device__ void issue_qk() {
    ptx::wgmma_fence();
    constexpr int kSlab = slab_columns(T.head_dim), kSteps = kSlab / kMmaK;
    const uint64_t q_rows = QkDescriptor::k_major(
        c.at(c.kSmem.q + q_stage * q_bytes(T) + warpgroup * 64 * T.head_dim * kElementBytes));
    const uint64_t k_rows = QkDescriptor::k_major(c.at(c.kSmem.k + k.stage() * k_stage_bytes(T)));
#pragma unroll
    for (int i = 0; i < T.head_dim / kMmaK; ++i) {
      const int slab = i / kSteps, column_bytes = i % kSteps * kMmaK * kElementBytes;
      Wgmma::ss(
          rS, q_rows + QkDescriptor::offset(slab * 64 * kSlab * kElementBytes + column_bytes),
          k_rows + QkDescriptor::offset(slab * T.tile_n * kSlab * kElementBytes + column_bytes),
          i > 0);
    }
    ptx::wgmma_commit_group();
  }

  // O += P V
  __device__ void issue_pv() {
    ptx::wgmma_fence();
    constexpr int kSlabBytes = T.tile_n * slab_columns(T.head_dim_v) * kElementBytes;
    const uint64_t v_rows =
        VDescriptor::mn_major(c.at(c.kSmem.v + v.stage() * v_stage_bytes(T)), kSlabBytes);
#pragma unroll
    for (int i = 0; i < T.tile_n / kMmaK; ++i) {
      WgmmaPv::rs(rO, rP[i], v_rows + VDescriptor::offset(i * 2 * VDescriptor::kEightRows));
    }
    ptx::wgmma_commit_group();
  }

  // Until Q and the first K of `tile` are there, if there is one and it sees keys. A tile without
  // keys multiplies whatever lies there and ignores it: the matrix instructions of a loop may not
  // hang on a condition, or ptxas serialises them.
  __device__ BlockRange wait_first(const WorkTile& tile) {
    if (tile.batch < 0) return {};
    const BlockRange blocks = blocks_of<T>(c.params, tile);
    q_stage = q.stage();
    c.pipeline(kQFull).consumer_wait(q);
    q.advance();
    if (blocks.n_block_max > blocks.n_block_min) c.pipeline(kKFull).consumer_wait(k);
    return blocks;
  }

  __device__ void wait_scores() {
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rS);
  }

  // All blocks of a tile but the product with the last block's V.
  __device__ void attend(const WorkTile& tile, const BlockRange& blocks) {
    const int first_column = 2 * (lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const KeyBounds row_bounds = bounds_of<T>(c.params, tile, row(r));
      bounds[r] = {row_bounds.begin - first_column, row_bounds.end - first_column};
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) rO[i] = 0.0f;
    softmax.reset();
    int n = blocks.n_block_max - 1;
    if (n >= blocks.n_block_min) {
      first_block(n--);
    } else {
      clear_p();
    }
    if constexpr (T.q_stages > 1) release_q();
#pragma unroll 1
    for (; n >= blocks.n_block_min; --n) {
      next_block(n, n >= blocks.full_end || n < blocks.full_begin);
    }
  }

  __device__ void first_block(int n_block) {
    release(c.pipeline(kKFull), k);
    if constexpr (T.softcap) cap_scores(rS, c.params.softcap, c.params.scale_over_softcap);
    mask(n_block);
    softmax.first_block(rS, c.params.scale_log2);
    pack_p();
  }

  // Scores of `n_block` and their softmax, under the product of the block before.
  __device__ void next_block(int n_block, bool masked) {
    c.pipeline(kKFull).consumer_wait(k);
    take_turn<T>(warpgroup);
    issue_qk();
    c.pipeline(kVFull).consumer_wait(v);
    issue_pv();
    pass_turn<T>(warpgroup);
    ptx::wgmma_wait_group<1>();
    ptx::fence_registers(rS);
    release(c.pipeline(kKFull), k);
    if constexpr (T.softcap) cap_scores(rS, c.params.softcap, c.params.scale_over_softcap);
    if (masked) mask(n_block);
    const bool rescale = softmax.update_max(rS, c.params.scale_log2);
    // Before the exponentials: V is given back early, the other warpgroups' products fill in.
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rO);
    release(c.pipeline(kVFull), v);
    if (rescale) rescale_o();
    ptx::fence_registers(rS);
    softmax.exponentiate(rS, c.params.scale_log2);
    pack_p();
  }

  __device__ void mask(int n_block) { mask_scores(rS, bounds, n_block * T.tile_n); }

  // The accumulator layout of two 8-column groups is the A operand of one 16-row step.
  __device__ void pack_p() {
#pragma unroll
    for (int i = 0; i < T.tile_n / kMmaK; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        rP[i][j] = pack<T.element>(rS[8 * i + 2 * j], rS[8 * i + 2 * j + 1]);
      }
    }
  }

  __device__ void clear_p() {
#pragma unroll
    for (int i = 0; i < T.tile_n / kMmaK; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) rP[i][j] = 0;
    }
  }

  __device__ void rescale_o() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) rO[i] *= softmax.acc_scale[i / 2 % 2];
  }

  __device__ void store(const WorkTile& tile, int stage) {
    const Epilogue<T> epilogue{c, tile, warpgroup, lane};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float lse;
      const float factor = softmax.finish(r, c.params.scale_log2, epilogue.sink_log2(row(r)), &lse);
      epilogue.store_lse(row(r), lse);
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) {
        if (i / 2 % 2 == r) rO[i] = factor == 0.0f ? 0.0f : rO[i] * factor;
      }
    }
    epilogue.store_out(rO, stage);
    out_pending = true;
  }

  // Gives the place of the last tile's out back to Q, when its store has been read.
  __device__ void release_q() {
    if (out_pending && lane == 0) {
      ptx::cp_async_bulk_wait_group_read<0>();
      c.pipeline(kQFull).consumer_release(q_out);
    }
    if (out_pending) q_out.advance();
    out_pending = false;
  }

  const Context<T>& c;
  const int warpgroup;
  const int lane;  // in the warpgroup

  PipelineState<kTileSlots> slot;
  PipelineState<T.q_stages> q;
  PipelineState<T.q_stages> q_out;  // whose out was stored last
  PipelineState<T.kv_stages> k, v;
  int q_stage = 0;  // of the tile in work
  bool out_pending = false;

  float rS[kScores];
  uint32_t rP[T.tile_n / kMmaK][4];
  float rO[kOutputs];
  OnlineSoftmax softmax;
  KeyBounds bounds[2];  // of this thread's two rows, from its first column on
};

}  // namespace fa4::sm90
