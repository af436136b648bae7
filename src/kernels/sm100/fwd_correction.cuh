// The correction warpgroup: multiplies O when a row's maximum rose, and ends each Q tile: O divided
// by the row sums to shared memory, lse to global memory.
#pragma once

#include "kernels/attention/finish_row.cuh"
#include "kernels/attention/row_softmax.cuh"
#include "kernels/sm100/fwd_context.cuh"
#include "kernels/sm100/fwd_output.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
class Correction {
 public:
  __device__ explicit Correction(const Context<T>& context)
      : c(context), warp(threadIdx.x / kWarpThreads % 4), row(threadIdx.x % kWarpgroupThreads) {}

  __device__ void run() {
#pragma unroll
    for (int i = 0; i < T.q_tiles; ++i) arrive(kPFull, i);  // O is free
    TileReader<T> tiles(c);
#pragma unroll 1
    for (Tile tile = tiles.next(); tile.is_valid(); tile = tiles.next()) {
      const Blocks blocks = blocks_of<T>(tile);
#pragma unroll 1
      for (int n = blocks.n_block_max - 1; n >= blocks.n_block_min; --n) {
#pragma unroll
        for (int i = 0; i < T.q_tiles; ++i) {
          if (!tile.sees(i, n)) continue;
          if (n != tile.blocks[i].n_block_max - 1) rescale(i);
          if (n == tile.blocks[i].n_block_min) arrive(kStatsEmpty, i);
        }
      }
#pragma unroll
      for (int i = 0; i < T.q_tiles; ++i) {
        if (has_rows<T>(c.params, tile.work, i)) finish(tile, i);
      }
    }
  }

 private:
  static constexpr int kRegisters = 16;  // columns of O in registers at a time

  __device__ void arrive(int kind, int q_tile) const {
    __syncwarp();
    if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kind, q_tile));
  }
  __device__ ptx::TmemAddr o(int q_tile, int column) const {
    return {static_cast<uint32_t>(warp * kWarpThreads << 16 | (c.kTmem.o[q_tile] + column))};
  }

  // The maxima of a block are known: P V so far is done, since its commit came before that block's
  // scores.
  __device__ void rescale(int q_tile) const {
    ptx::barrier_sync(factors_barrier(q_tile, warp), 2 * kWarpThreads);
    const float factor = c.factor(q_tile, row);
    if (__any_sync(0xffffffffu, factor != 1.0f)) {
      ptx::tcgen05_fence_after_thread_sync();
      multiply_o(q_tile, factor);
      ptx::tcgen05_wait_st();
      ptx::tcgen05_fence_before_thread_sync();
    }
    arrive(kPFull, q_tile);
  }

  // A chunk is loaded while the one before it is multiplied.
  __device__ void multiply_o(int q_tile, float factor) const {
    constexpr int kSteps = T.head_dim_v / kRegisters;
    const ptx::Float2 both = ptx::pack_float2(factor);
    float chunk[2][kRegisters];
    ptx::tcgen05_ld_32x32b(chunk[0], o(q_tile, 0));
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      float(&r)[kRegisters] = chunk[i % 2];
      ptx::tcgen05_wait_ld();
      ptx::fence_loaded(r);
      if (i + 1 < kSteps) {
        ptx::tcgen05_ld_32x32b(chunk[(i + 1) % 2], o(q_tile, (i + 1) * kRegisters));
      }
#pragma unroll
      for (int j = 0; j < kRegisters; j += 2) {
        ptx::unpack_float2(ptx::mul_rn_ftz(ptx::pack_float2(r[j], r[j + 1]), both), &r[j],
                           &r[j + 1]);
      }
      ptx::tcgen05_st_32x32b(o(q_tile, i * kRegisters), r);
    }
  }

  __device__ void finish(const Tile& tile, int q_tile) {
    const OutputRow<T> out{c, tile.work, q_tile, row};
    const bool sees_keys = tile.sees_keys(q_tile);
    float sum = 0.0f, maximum = -kInfinity;
    if (sees_keys) {
      wait(c.barrier(kStatsFull, q_tile), phase[q_tile]);
      sum = c.factor(q_tile, row);
      maximum = c.maximum(q_tile, row);
      wait(c.barrier(kOFull, q_tile), phase[q_tile]);
      phase[q_tile] ^= 1;
      ptx::tcgen05_fence_after_thread_sync();
    }
    const FinishedRow r = finish_row(sum, maximum, c.params.scale_log2, out.sink_log2());
    out.store_lse(r.lse);
    wait(c.barrier(kOutEmpty, q_tile), out_phase[q_tile] ^ 1);
    out_phase[q_tile] ^= 1;
#pragma unroll
    for (int column = 0; column < T.head_dim_v; column += kRegisters) {
      float v[kRegisters];
      if (sees_keys) {
        ptx::tcgen05_ld_32x32b(v, o(q_tile, column));
        ptx::tcgen05_wait_ld();
        ptx::fence_loaded(v);
      }
#pragma unroll
      for (int j = 0; j < kRegisters; ++j) v[j] = r.factor == 0.0f ? 0.0f : v[j] * r.factor;
      out.stage(column, v);
    }
    if (sees_keys) {
      ptx::tcgen05_fence_before_thread_sync();
      arrive(kPFull, q_tile);  // O is free
    }
    ptx::fence_proxy_async_shared();
    arrive(kOutFull, q_tile);
  }

  const Context<T>& c;
  const int warp;
  const int row;  // of the Q tile
  uint32_t phase[2] = {0, 0};
  uint32_t out_phase[2] = {0, 0};
};

}  // namespace fa4::sm100
