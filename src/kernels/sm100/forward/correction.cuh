// The correction warpgroup: multiplies O when a row's maximum rose, and ends each Q tile: O divided
// by the row sums to shared memory, lse to global memory.
#pragma once

#include "kernels/geometry/step_sequence.h"
#include "kernels/ptx/packed.cuh"
#include "kernels/sm100/forward/context.cuh"
#include "kernels/sm100/forward/output.cuh"
#include "kernels/softmax/finish_row.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
class Correction {
 public:
  __device__ explicit Correction(const FwdContext<T>& context)
      : c(context),
        warp(warp_of_warpgroup()),
        factors(factors_barrier(0, threadIdx.x / kWarpThreads % 4)),
        row(threadIdx.x % kWarpgroupThreads),
        o{static_cast<uint32_t>(warp * kWarpThreads << 16 | context.kTmem.o[0])} {}

  __device__ void run() {
#pragma unroll
    for (int i = 0; i < T.q_tiles; ++i) release_o(i);  // nothing lies in it yet
    TileReader<FwdContext<T>> tiles(c);
#pragma unroll 1
    for (;; tiles.release()) {
      const QTiles& tile = tiles.wait();  // stays in shared memory: registers are few
      if (!tile.is_valid()) break;
#pragma unroll 1
      for (StepSequence<T.q_tiles> steps(tile.blocks); !steps.is_done(); steps.advance()) {
#pragma unroll
        for (int i = 0; i < T.q_tiles; ++i) {
          if (steps.is_later(i)) rescale(i);
        }
      }
#pragma unroll
      for (int i = 0; i < T.q_tiles; ++i) {
        if (tile.sees_keys(i)) arrive(kStatsEmpty, i);
      }
#pragma unroll 1
      for (int i = 0; i < T.q_tiles; ++i) {
        if constexpr (T.parts) {
          finish_part(tile, i);
        } else {
          if (has_rows<T>(c.params.heads, tile.work, i)) finish(tile, i);
        }
      }
    }
    tiles.release();
    // The last release of O began a phase in which no softmax warp will arrive. These arrivals
    // stand for theirs, so that no barrier is left in the middle of a phase.
#pragma unroll
    for (int i = 0; i < T.q_tiles; ++i) release_o(i);
  }

 private:
  static constexpr int kRegisters = 16;  // columns of O that are multiplied at a time

  __device__ void arrive(int kind, int q_tile) const {
    __syncwarp();
    if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kind, q_tile));
  }

  // P V may add to O, or begin it anew: p_full waits for this as for the first keys of P.
  __device__ void release_o(int q_tile) const {
    __syncwarp();
    // What it has read of shared memory, softmax writes again when the products are done.
    if (ptx::elect_sync()) c.release_to_mma(kPFull, q_tile);
  }

  // The maxima of a block are known only when P V so far is done: its commit came before that
  // block's scores, or softmax has waited for p_free.
  __device__ void rescale(int q_tile) const {
    ptx::barrier_sync(factors + q_tile * (factors_barrier(1, 0) - factors_barrier(0, 0)),
                      2 * kWarpThreads);
    const float shift = c.shift_or_sum(q_tile, row);
    if (__any_sync(0xffffffffu, shift != 0.0f)) {
      ptx::tcgen05_fence_after_thread_sync();
      multiply_o(o + q_tile * T.head_dim_v, ptx::pack_float2(ptx::ex2_approx_ftz(shift)));
      ptx::tcgen05_wait_st();
      ptx::tcgen05_fence_before_thread_sync();
    }
    release_o(q_tile);
  }

  // A chunk is loaded while the one before it is multiplied. Rare, so a loop of two chunks.
  __device__ void multiply_o(ptx::TmemAddr at, ptx::Float2 factor) const {
    static_assert(T.head_dim_v % (2 * kRegisters) == 0);
    const ptx::TmemAddr last = at + (T.head_dim_v - 2 * kRegisters);
    float even[kRegisters], odd[kRegisters];
    ptx::tcgen05_ld_32x32b<0>(even, at);
#pragma unroll 1
    for (;; at = at + 2 * kRegisters) {
      ptx::tcgen05_wait_ld();
      ptx::fence_loaded(even);
      ptx::tcgen05_ld_32x32b<kRegisters>(odd, at);
      multiply(even, factor);
      ptx::tcgen05_st_32x32b<0>(at, even);
      ptx::tcgen05_wait_ld();
      ptx::fence_loaded(odd);
      if (at.value != last.value) ptx::tcgen05_ld_32x32b<2 * kRegisters>(even, at);
      multiply(odd, factor);
      ptx::tcgen05_st_32x32b<kRegisters>(at, odd);
      if (at.value == last.value) break;
    }
  }
  __device__ static void multiply(float (&r)[kRegisters], ptx::Float2 factor) {
#pragma unroll
    for (int j = 0; j < kRegisters; j += 2) {
      ptx::mul_rn_ftz(r[j], r[j + 1], factor);
    }
  }

  __device__ void finish(const QTiles& tile, int q_tile) {
    const OutputRow<T> out{c, tile.work, q_tile, row};
    if (!tile.sees_keys(q_tile)) {
      out.store_lse(finish_row(0.0f, -kInfinity, false, out.sink()).lse);
      out.clear();
      return;
    }
    const auto phase = phases.next(kStatsFull, q_tile);
    phase.wait(c, kStatsFull, q_tile);
    const float sum = c.shift_or_sum(q_tile, row), max_log2 = c.maximum(q_tile, row);
    const FinishedRow r = finish_row(sum, max_log2, out.sees_keys(), out.sink());
    out.store_lse(r.lse);
    phase.wait(c, kOFull, q_tile);
    ptx::tcgen05_fence_after_thread_sync();
    if constexpr (stores_by_tma(T)) {
      phase.wait(c, kOutEmpty, q_tile);
      stage_out(o + q_tile * T.head_dim_v, out.staging(), r.factor);
    } else {
      store_out(o + q_tile * T.head_dim_v, reinterpret_cast<float*>(out.begin()), r.factor);
    }
    ptx::tcgen05_fence_before_thread_sync();
    release_o(q_tile);
    if constexpr (stores_by_tma(T)) {
      ptx::fence_proxy_async_shared();
      arrive(kOutFull, q_tile);
    }
  }

  // O, its sum and maximum to global memory: a tile has keys in its part.
  __device__ void finish_part(const QTiles& tile, int q_tile) {
    const PartParams& parts = c.params.parts;
    const int64_t at = OutputRow<T>{c, tile.work, q_tile, row}.part_row();
    const auto phase = phases.next(kStatsFull, q_tile);
    phase.wait(c, kStatsFull, q_tile);
    if (at >= 0) parts.stats[at] = {c.maximum(q_tile, row), c.shift_or_sum(q_tile, row)};
    phase.wait(c, kOFull, q_tile);
    ptx::tcgen05_fence_after_thread_sync();
    store_o(o + q_tile * T.head_dim_v, at < 0 ? nullptr : parts.sums + at * T.head_dim_v);
    ptx::tcgen05_fence_before_thread_sync();
    release_o(q_tile);
  }

  // A row of O to global memory, or nowhere; all lanes of a warp load it together.
  __device__ void store_o(ptx::TmemAddr from, float* to) const {
#pragma unroll 1
    for (int column = 0; column < T.head_dim_v; column += kChunk) {
      float r[kChunk];
      ptx::tcgen05_ld_and_wait_32x32b(r, from + column);
      if (to != nullptr) store_chunk(r, to + column, kChunk);
    }
  }
  // O times the row's factor likewise, in f32: the columns that out has.
  __device__ void store_out(ptx::TmemAddr from, float* to, float factor) const {
#pragma unroll 1
    for (int column = 0; column < T.head_dim_v; column += kChunk) {
      float r[kChunk];
      load_out(r, from + column, factor);
      if (to != nullptr) store_chunk(r, to + column, c.params.output.head_dim_v - column);
    }
  }
  __device__ static void store_chunk(const float (&r)[kChunk], float* to, int columns) {
#pragma unroll
    for (int j = 0; j < kChunk; j += 4) {
      if (j < columns) *reinterpret_cast<float4*>(to + j) = {r[j], r[j + 1], r[j + 2], r[j + 3]};
    }
  }

  // O times the row's factor to shared memory.
  __device__ void stage_out(ptx::TmemAddr from, const typename OutputRow<T>::Staging& staging,
                            float factor) const {
#pragma unroll 1
    for (int column = 0; column < T.head_dim_v; column += kChunk) {
      float r[kChunk];
      load_out(r, from + column, factor);
      staging.put(column, r);
    }
  }

  __device__ static void load_out(float (&r)[kChunk], ptx::TmemAddr from, float factor) {
    ptx::tcgen05_ld_and_wait_32x32b(r, from);
#pragma unroll
    for (int j = 0; j < kChunk; ++j) r[j] = factor == 0.0f ? 0.0f : r[j] * factor;
  }

  const FwdContext<T>& c;
  const int warp;
  const int factors;      // the named barrier of Q tile 0
  const int row;          // of the Q tile
  const ptx::TmemAddr o;  // of Q tile 0, this warp's lanes
  PhasesOf<T, T.q_tiles, kStatsFull> phases;
};

}  // namespace fa4::sm100
