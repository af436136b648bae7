// A softmax warpgroup: the 128 rows of one Q tile, a row a thread. Scores come from tensor memory
// and go back to it as probabilities, in the place of the scores.
#pragma once

#include "kernels/attention/exp2.cuh"
#include "kernels/attention/row_mask.cuh"
#include "kernels/attention/row_softmax.cuh"
#include "kernels/attention/softcap.cuh"
#include "kernels/sm100/fwd_context.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
class Softmax {
 public:
  __device__ Softmax(const Context<T>& context, int q_tile)
      : c(context),
        p(context.params),
        q_tile(q_tile),
        warp(threadIdx.x / kWarpThreads % 4),
        row(threadIdx.x % kWarpgroupThreads) {}

  __device__ void run() {
    TileReader<T> tiles(c);
#pragma unroll 1
    for (Tile tile = tiles.next(); tile.is_valid(); tile = tiles.next()) {
      if (!tile.sees_keys(q_tile)) continue;
      softmax.reset();
      find_bounds(tile.work);
      const BlockRange blocks = tile.blocks[q_tile];
      bool first = true;
#pragma unroll 1
      for (int n = blocks.n_block_max - 1; n >= blocks.n_block_min; --n) {
        const int first_key = n * kTileN;
        wait(c.barrier(kSFull, q_tile), s_phase);
        s_phase ^= 1;
        ptx::tcgen05_fence_after_thread_sync();
        if (first_key >= seen_by_all.begin && first_key + kTileN <= seen_by_all.end) {
          block<false>(first_key, first);
        } else {
          block<true>(first_key, first);
        }
        first = false;
      }
      hand_over_stats();
    }
  }

 private:
  static constexpr int kPairsOfChunk = kChunk / 2;

  // Scores to probabilities. Chunks that no row of the warp sees cost next to nothing, and those
  // that all rows see whole need no mask.
  template <bool kMasked>
  __device__ void block(int first_key, bool first) {
    float s[kChunks][kChunk];
    const float factor = maximum<kMasked>(s, first_key);
    if (!first) hand_over_factor(factor);
    const ptx::Float2 scale = ptx::pack_float2(p.scale_log2);
    const ptx::Float2 offset = ptx::pack_float2(softmax.offset(p.scale_log2));
    exponentials<kMasked, 0>(s, first_key, scale, offset);
    softmax.template add<kChunks * kChunk>(reinterpret_cast<float(&)[kChunks * kChunk]>(s), factor);
  }

  __device__ bool is_hidden(int first_key, int chunk) const {
    const int key = first_key + chunk * kChunk;
    return key >= seen_by_some.end || key + kChunk <= seen_by_some.begin;
  }
  __device__ bool is_whole(int first_key, int chunk) const {
    const int key = first_key + chunk * kChunk;
    return key >= seen_by_all.begin && key + kChunk <= seen_by_all.end;
  }

  // Loads the scores and moves the row's maximum; returns what O and the sum are multiplied by.
  template <bool kMasked>
  __device__ float maximum(float (&s)[kChunks][kChunk], int first_key) {
    float top[4] = {softmax.row_max, -kInfinity, -kInfinity, -kInfinity};
    if constexpr (!kMasked) load(s[0], 0);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (kMasked && is_hidden(first_key, i)) {
#pragma unroll
        for (int j = 0; j < kChunk; ++j) s[i][j] = 0.0f;
        continue;
      }
      if constexpr (kMasked) load(s[i], i);
      ptx::tcgen05_wait_ld();
      ptx::fence_loaded(s[i]);
      if (!kMasked && i + 1 < kChunks) load(s[i + 1], i + 1);
      if constexpr (T.softcap) cap_scores(s[i], p.softcap, p.scale_over_softcap);
      if (kMasked && !is_whole(first_key, i)) {
        mask_row(s[i], seen.begin - first_key - i * kChunk, seen.end - first_key - i * kChunk);
      }
#pragma unroll
      for (int j = 0; j < kChunk; j += 8) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          top[k] = ptx::max_nan(top[k], s[i][j + 2 * k], s[i][j + 2 * k + 1]);
        }
      }
    }
    return softmax.update_max(ptx::max_nan(ptx::max_nan(top[0], top[1], top[2]), top[3]),
                              p.scale_log2);
  }

  __device__ void load(float (&s)[kChunk], int chunk) const {
    ptx::tcgen05_ld_32x32b(s, tmem(c.kTmem.s[q_tile_of()] + chunk * kChunk));
  }

  // From a chunk on: exponentials, conversion, and P to tensor memory; the first keys are handed
  // over as soon as they are there.
  template <bool kMasked, int kFirst>
  __device__ void exponentials(float (&s)[kChunks][kChunk], int first_key, ptx::Float2 scale,
                               ptx::Float2 offset) {
    if (!kMasked || !is_hidden(first_key, kFirst)) {
      exponentiate<kFirst>(s[kFirst], scale, offset);
    }
    uint32_t packed[kPairsOfChunk];
#pragma unroll
    for (int i = 0; i < kPairsOfChunk; ++i) {
      packed[i] = pack<T.element>(s[kFirst][2 * i], s[kFirst][2 * i + 1]);
    }
    ptx::tcgen05_st_32x32b(tmem(c.kTmem.s[q_tile_of()] + kFirst * kPairsOfChunk), packed);
    if constexpr ((kFirst + 1) * kChunk == T.first_keys) hand_over(kPFull);
    if constexpr (kFirst + 1 == kChunks) {
      hand_over(kPRest);
    } else {
      exponentials<kMasked, kFirst + 1>(s, first_key, scale, offset);
    }
  }

  template <int kChunkIndex, int kPair = 0>
  __device__ static void exponentiate(float (&s)[kChunk], ptx::Float2 scale, ptx::Float2 offset) {
    if constexpr (kPair < kPairsOfChunk) {
      constexpr bool kPolynomial = is_polynomial(T, kChunkIndex * kPairsOfChunk + kPair);
      exp2_pair<kPolynomial, T.polynomial_degree>(s[2 * kPair], s[2 * kPair + 1], scale, offset);
      exponentiate<kChunkIndex, kPair + 1>(s, scale, offset);
    }
  }

  // P is in tensor memory: for the tensor core.
  __device__ void hand_over(int kind) const {
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();
    __syncwarp();
    if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kind, q_tile));
  }

  // For the correction warp of the same rows. It has read the last factor: the scores of this block
  // were multiplied after it let the P before them go.
  __device__ void hand_over_factor(float factor) const {
    c.factor(q_tile, row) = factor;
    ptx::barrier_arrive(factors_barrier(q_tile, warp), 2 * kWarpThreads);
  }

  __device__ void hand_over_stats() {
    wait(c.barrier(kStatsEmpty, q_tile), stats_phase);
    stats_phase ^= 1;
    c.factor(q_tile, row) = softmax.row_sum;
    c.maximum(q_tile, row) = softmax.row_max;
    __syncwarp();
    if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kStatsFull, q_tile));
  }

  // Keys that this thread's row sees, that all rows of the warp see, and that any of them sees.
  // Both bounds grow from row to row.
  __device__ void find_bounds(const WorkTile& tile) {
    const int first = first_row<T>(tile, q_tile) + warp * kWarpThreads;
    const KeyBounds top = bounds_of(p, tile, first);
    const KeyBounds bottom = bounds_of(p, tile, first + kWarpThreads - 1);
    seen = bounds_of(p, tile, first + static_cast<int>(threadIdx.x % kWarpThreads));
    seen_by_all = {bottom.begin, top.end};
    seen_by_some = {top.begin, bottom.end};
  }

  __device__ int q_tile_of() const { return q_tile; }
  __device__ ptx::TmemAddr tmem(int column) const {
    return {static_cast<uint32_t>(warp * kWarpThreads << 16 | column)};
  }

  const Context<T>& c;
  const FwdParams& p;
  const int q_tile;
  const int warp;  // of the warpgroup
  const int row;   // of the Q tile
  RowSoftmax softmax;
  KeyBounds seen, seen_by_all, seen_by_some;
  uint32_t s_phase = 0;
  uint32_t stats_phase = 0;
};

}  // namespace fa4::sm100
