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
        warp(warp_of_warpgroup()),
        row(threadIdx.x % kWarpgroupThreads),
        scores{static_cast<uint32_t>(warp * kWarpThreads << 16 | q_tile * kTileN)} {}

  __device__ void run() {
    TileReader<T> tiles(c);
#pragma unroll 1
    for (QTile tile = tiles.next(q_tile); tile.is_valid(); tile = tiles.next(q_tile)) {
      if (!tile.sees_keys()) continue;
      softmax.reset();
      find_bounds(tile.work);
      const int n_first = tile.blocks.n_block_max - 1;
#pragma unroll 1
      for (int n = n_first; n >= tile.blocks.n_block_min; --n) {
        const int first_key = n * kTileN;
        c.wait(kSFull, q_tile, s_phase);
        s_phase ^= 1;
        ptx::tcgen05_fence_after_thread_sync();
        if (first_key >= seen_by_all.begin && first_key + kTileN <= seen_by_all.end) {
          block<false>(first_key, n == n_first);
        } else {
          block<true>(first_key, n == n_first);
        }
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
    RowSoftmax::Sum sum = softmax.begin_sum(factor);
    exponentials<kMasked, 0>(s, first_key, scale, offset, sum);
    if constexpr (!kMasked) {  // the tensor core has P already
#pragma unroll
      for (int i = 0; i < kChunks; ++i) sum.add(s[i]);
    }
    softmax.end_sum(sum);
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
    load<0>(s[0]);
    maximum_of_chunk<kMasked, 0>(s, first_key, top);
    return softmax.update_max(ptx::max_nan(ptx::max_nan(top[0], top[1], top[2]), top[3]),
                              p.scale_log2);
  }

  // From a chunk on: four maxima, of every eighth pair each.
  template <bool kMasked, int kFirst>
  __device__ void maximum_of_chunk(float (&s)[kChunks][kChunk], int first_key,
                                   float (&top)[4]) const {
    ptx::tcgen05_wait_ld();
    ptx::fence_loaded(s[kFirst]);
    if constexpr (kFirst + 1 < kChunks) load<kFirst + 1>(s[kFirst + 1]);
    if (!kMasked || !is_hidden(first_key, kFirst)) {
      if constexpr (T.softcap) cap_scores(s[kFirst], p.softcap, p.scale_over_softcap);
      if (kMasked && !is_whole(first_key, kFirst)) {
        const int key = first_key + kFirst * kChunk;
        mask_row(s[kFirst], seen.begin - key, seen.end - key);
      }
#pragma unroll
      for (int j = 0; j < kChunk; j += 8) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          top[k] = ptx::max_nan(top[k], s[kFirst][j + 2 * k], s[kFirst][j + 2 * k + 1]);
        }
      }
    }
    if constexpr (kFirst + 1 < kChunks) maximum_of_chunk<kMasked, kFirst + 1>(s, first_key, top);
  }

  template <int kIndex>
  __device__ void load(float (&s)[kChunk]) const {
    ptx::tcgen05_ld_32x32b<kIndex * kChunk>(s, scores);
  }

  // From a chunk on: exponentials, conversion, and P to tensor memory; the first keys are handed
  // over as soon as they are there.
  template <bool kMasked, int kFirst>
  __device__ void exponentials(float (&s)[kChunks][kChunk], int first_key, ptx::Float2 scale,
                               ptx::Float2 offset, RowSoftmax::Sum& sum) {
    uint32_t packed[kPairsOfChunk];
    if (kMasked && is_hidden(first_key, kFirst)) {
#pragma unroll
      for (int i = 0; i < kPairsOfChunk; ++i) packed[i] = 0;
    } else {
      exponentiate(kFirst, s[kFirst], scale, offset);
#pragma unroll
      for (int i = 0; i < kPairsOfChunk; ++i) {
        packed[i] = pack<T.element>(s[kFirst][2 * i], s[kFirst][2 * i + 1]);
      }
      if constexpr (kMasked) sum.add(s[kFirst]);
    }
    ptx::tcgen05_st_32x32b<kFirst * kPairsOfChunk>(scores, packed);
    if constexpr ((kFirst + 1) * kChunk == T.first_keys) {
      // The rest waits for the vote that comes with the hand-over: else ptxas begins it before.
      float low, high;
      ptx::unpack_float2(offset, &low, &high);
      const float same = __shfl_sync(0xffffffffu, low, threadIdx.x % kWarpThreads);
      offset = ptx::pack_float2(hand_over(kPFull) ? same : low);
    }
    if constexpr (kFirst + 1 == kChunks) {
      hand_over(kPRest);
    } else {
      exponentials<kMasked, kFirst + 1>(s, first_key, scale, offset, sum);
    }
  }

  __device__ static void exponentiate(int chunk, float (&s)[kChunk], ptx::Float2 scale,
                                      ptx::Float2 offset) {
#pragma unroll
    for (int i = 0; i < kPairsOfChunk; ++i) {
      if (is_polynomial(T, chunk * kPairsOfChunk + i)) {
        exp2_pair<true, T.polynomial_degree>(s[2 * i], s[2 * i + 1], scale, offset);
      } else {
        exp2_pair<false, T.polynomial_degree>(s[2 * i], s[2 * i + 1], scale, offset);
      }
    }
  }

  // P is in tensor memory: for the tensor core.
  __device__ bool hand_over(int kind) const {
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();
    __syncwarp();
    const bool elected = ptx::elect_sync();
    if (elected) c.arrive_at_mma(kind, q_tile);
    return elected;
  }

  // For the correction warp of the same rows. It has read the last factor: the scores of this block
  // were multiplied after it let the P before them go.
  __device__ void hand_over_factor(float factor) const {
    c.factor(q_tile, row) = factor;
    ptx::barrier_arrive(factors_barrier(q_tile, warp), 2 * kWarpThreads);
  }

  __device__ void hand_over_stats() {
    c.wait(kStatsEmpty, q_tile, stats_phase);
    stats_phase ^= 1;
    c.factor(q_tile, row) = softmax.row_sum;
    c.maximum(q_tile, row) = softmax.row_max;
    __syncwarp();
    if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kStatsFull, q_tile));
  }

  // Keys that this thread's row sees, that all rows of the warp see, and that any of them sees.
  // Both bounds grow from row to row.
  __device__ void find_bounds(const WorkTile& tile) {
    const int first = first_row(c, tile, q_tile) + warp * kWarpThreads;
    const KeyBounds top = bounds_of(p, tile, first);
    const KeyBounds bottom = bounds_of(p, tile, first + kWarpThreads - 1);
    seen = bounds_of(p, tile, first + static_cast<int>(threadIdx.x % kWarpThreads));
    seen_by_all = {bottom.begin, top.end};
    seen_by_some = {top.begin, bottom.end};
  }

  const Context<T>& c;
  const FwdParams& p;
  const int q_tile;
  const int warp;  // of the warpgroup
  const int row;   // of the Q tile
  const ptx::TmemAddr scores;
  RowSoftmax softmax;
  KeyBounds seen, seen_by_all, seen_by_some;
  uint32_t s_phase = 0;
  uint32_t stats_phase = 0;
};

}  // namespace fa4::sm100
