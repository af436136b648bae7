// A softmax warpgroup: the 128 rows of one Q tile, a row a thread. Scores come from tensor memory
// and go back to it as probabilities, in the place of the scores or beside them.
#pragma once

#include "kernels/ptx/order.cuh"
#include "kernels/scores/mask_row.cuh"
#include "kernels/scores/softcap.cuh"
#include "kernels/sm100/forward/context.cuh"
#include "kernels/softmax/exp2.cuh"
#include "kernels/softmax/row_softmax.cuh"
#include "kernels/tile/unroll.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
class Softmax {
 public:
  __device__ Softmax(const FwdContext<T>& context, int q_tile)
      : c(context),
        p(context.params),
        q_tile(q_tile),
        warp(warp_of_warpgroup()),
        row(threadIdx.x % kWarpgroupThreads),
        factors(factors_barrier(q_tile, threadIdx.x / kWarpThreads % 4)),
        scores{static_cast<uint32_t>(warp * kWarpThreads << 16 | q_tile * s_and_p_columns(T))},
        scale_log2(context.params.scores.scale_log2),
        lowest_max(RowSoftmax::lowest_max(scale_log2)) {}

  __device__ void run() {
    TileReader<FwdContext<T>> tiles(c);
#pragma unroll 1
    for (QTile tile = next_q_tile<T>(tiles, q_tile); tile.is_valid();
         tile = next_q_tile<T>(tiles, q_tile)) {
      if (!tile.sees_keys()) continue;
      softmax.reset();
      find_bounds(tile);
      // Blocks with hidden keys come first, those that all rows of the warp see whole have a loop
      // of their own, and behind a window's left edge come hidden keys again. Capping takes so many
      // instructions that with it one loop serves all blocks.
      int n = n_first, stop = T.softcap ? n_last : max(whole_end, n_last);
#pragma unroll 1
      do {
#pragma unroll 1
        for (; n >= stop; --n) block<true>(n);
        if constexpr (!T.softcap) {
#pragma unroll 1
          for (const int end = min(whole_begin - 1, n); n != end; --n) block<false>(n);
        }
        stop = n_last;
      } while (n >= n_last);
      arrive_with_stats();
    }
  }

 private:
  static constexpr int kPairsOfChunk = kChunk / 2;
  static constexpr int kEarlyPairs = T.polynomial_pairs > 0 ? 3 : 0;  // of a chunk
  static constexpr int kPOffset = tmem_layout(T).p[0] - tmem_layout(T).s[0];

  // Scores to probabilities. Chunks that no row of the warp sees cost next to nothing, and those
  // that all rows see whole need no mask.
  template <bool kMasked>
  __device__ void block(int n) {
    const auto phase = phases.next(kSFull);
    phase.wait(c, kSFull, q_tile);
    ptx::tcgen05_fence_after_thread_sync();
    const int first_key = n * kTileN;
    float s[kChunks][kChunk];
    const float block_max = maximum<kMasked>(s, first_key);
    if constexpr (T.p_apart) {  // P V of the block before is done, so that O may be rescaled, too
      phase.wait(c, kPFree, q_tile);
      ptx::tcgen05_fence_after_thread_sync();
    }
    move_maximum(block_max, n == n_first);
    RowSoftmax::Sum sum;
    if constexpr (kMasked) sum.begin_empty();
    exponentials<kMasked>(s, first_key, sum);
    if constexpr (!kMasked) {  // the tensor core has P already
      sum.begin(s[0]);
#pragma unroll
      for (int i = 1; i < kChunks; ++i) sum.add(s[i]);
    }
    softmax.end_sum(sum);
  }

  // Takes a block's maximum into the row's. Most blocks move no maximum of the warp's rows, and
  // only tell correction so.
  __device__ void move_maximum(float block_max, bool is_first) {
    const float shift = softmax.shift_to(block_max, scale_log2);
    if (__any_sync(0xffffffffu, RowSoftmax::is_far(shift))) {
      const float moved = softmax.move(block_max, shift, scale_log2);
      if (!is_first) arrive_with_shift(moved);
    } else {
      arrive_with_shift(0.0f);
    }
  }

  __device__ bool is_hidden(int first_key, int chunk) const {
    const int key = first_key + chunk * kChunk;
    return key >= seen_by_some.end || key + kChunk <= seen_by_some.begin;
  }
  __device__ bool is_whole(int first_key, int chunk) const {
    const int key = first_key + chunk * kChunk;
    return key >= seen_by_all.begin && key + kChunk <= seen_by_all.end;
  }

  // Loads the scores; returns the largest that the row sees.
  template <bool kMasked>
  __device__ float maximum(float (&s)[kChunks][kChunk], int first_key) {
    if constexpr (ptx::kHasLoadMax && !kMasked && !T.softcap) {
      float top[kChunks];
      ptx::tcgen05_ld_max_and_wait_32x32b(s, top, scores);
      free_s();
      return ptx::max_nan(ptx::max_nan(top[0], top[1], top[2]), top[3], lowest_max);
    }
    ptx::tcgen05_ld_and_wait_32x32b(s, scores);
    free_s();
    float top[3] = {lowest_max, lowest_max, lowest_max};
#pragma unroll
    for (int i = 0; i < kChunks; ++i) maximum_of_chunk<kMasked>(s[i], first_key, i, top);
    return ptx::max_nan(top[0], top[1], top[2]);
  }

  // The scores are in registers: the next ones may come where P has a place of its own.
  __device__ void free_s() {
    if constexpr (T.p_apart) arrive<true>(kSFree);
  }

  // Three maxima, of every third pair each.
  template <bool kMasked>
  __device__ void maximum_of_chunk(float (&s)[kChunk], int first_key, int chunk,
                                   float (&top)[3]) const {
    if (kMasked && is_hidden(first_key, chunk)) return;
    const bool whole = !kMasked || is_whole(first_key, chunk);
    if constexpr (T.softcap) {
      const bool near =
          whole && __all_sync(0xffffffffu, !exists || largest_of(s) <= p.cap.near.limit);
      cap_scores(s, p.cap, near, whole);
    }
    if (!whole) {
      const int key = first_key + chunk * kChunk;
      mask_row(s, seen.begin - key, seen.end - key);
    }
    if (!kMasked && chunk == 0) {
      top[1] = s[0];
      top[2] = s[1];
    }
#pragma unroll
    for (int i = !kMasked && chunk == 0; i < kPairsOfChunk; ++i) {
      float& t = top[(i + chunk) % 3];
      t = ptx::max_nan(t, s[2 * i], s[2 * i + 1]);
    }
  }

  // Chunk by chunk exponentials, conversion, and P to tensor memory; keys are handed over in parts,
  // as soon as they are there.
  template <bool kMasked>
  __device__ void exponentials(float (&s)[kChunks][kChunk], int first_key, RowSoftmax::Sum& sum) {
    const float offset_before_arrival = softmax.line.offset;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const ptx::TmemAddr to = scores + (kPOffset + i * kPairsOfChunk);
      if (kMasked && is_hidden(first_key, i)) {
        constexpr uint32_t kZeros[kPairsOfChunk] = {};
        ptx::tcgen05_st_32x32b<0>(to, kZeros);
      } else {
        exponentiate(i, s[i], offset_before_arrival);
        uint32_t packed[kPairsOfChunk];
#pragma unroll
        for (int j = 0; j < kPairsOfChunk; ++j) {
          packed[j] = pack<T.element>(s[i][2 * j], s[i][2 * j + 1]);
        }
        ptx::tcgen05_st_32x32b<0>(to, packed);
        if constexpr (kMasked) sum.add(s[i]);
      }
      const int keys = (i + 1) * kChunk;
      if (keys == T.p_parts.ends[0]) {
        ptx::tcgen05_wait_st();
        arrive<true>(kPFull);
        softmax.line.offset = ptx::order_after(elected, offset_before_arrival);
      } else if (keys == T.p_parts.ends[1] || keys == T.p_parts.ends[2]) {
        ptx::tcgen05_wait_st();
        arrive(keys == kTileN ? kPRest : kPNext);
      }
    }
  }

  // The first pairs of a chunk do not wait for the arrival: they are the exponential unit's work
  // while P is on its way. Their offset is the same number, known earlier.
  __device__ void exponentiate(int chunk, float (&s)[kChunk], float offset_before_arrival) const {
    Exp2Line early_line = softmax.line;
    early_line.offset = offset_before_arrival;
#pragma unroll
    for (int i = 0; i < kPairsOfChunk; ++i) {
      const Exp2Line& line = i < kEarlyPairs ? early_line : softmax.line;
      if (is_polynomial(T, chunk * kPairsOfChunk + i)) {
        exp2_polynomial<T.polynomial_degree>(s[2 * i], s[2 * i + 1], line);
      } else {
        exp2_unit(s[2 * i], s[2 * i + 1], line);
      }
    }
  }

  // Tells the tensor core that this warp has done in tensor memory what `kind` stands for. One lane
  // arrives, elected here or, to save votes, where the warp last arrived with kElects.
  template <bool kElects = false>
  __device__ void arrive(int kind) {
    ptx::tcgen05_fence_before_thread_sync();
    __syncwarp();
    if constexpr (kElects) elected = ptx::elect_sync_lane();
    if (elected.is_elected) c.arrive_at_mma(kind, q_tile);
  }

  // Gives the correction warp of the same rows the power of two to multiply O by. It has read the
  // last one: it then released O for the P V that these scores, or p_free, say is done.
  __device__ void arrive_with_shift(float shift) const {
    c.shift_or_sum(q_tile, row) = shift;
    ptx::barrier_arrive(factors, 2 * kWarpThreads);
  }

  __device__ void arrive_with_stats() {
    phases.wait(c, kStatsEmpty, q_tile);
    c.shift_or_sum(q_tile, row) = softmax.row_sum;
    c.maximum(q_tile, row) = softmax.max_log2();
    __syncwarp();
    if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kStatsFull, q_tile));
  }

  // Keys that this thread's row sees, that all rows of the warp see, and that any of them sees.
  // Both bounds grow from row to row.
  __device__ void find_bounds(const QTile& tile) {
    const int first = first_row(c, tile.work, q_tile) + warp * kWarpThreads;
    const int own = first + static_cast<int>(threadIdx.x % kWarpThreads);
    exists = own < tile.work.seqlen_q << p.heads.group_log2;
    const KeyBounds top = key_bounds_of(p.heads, p.mask, tile.work, first);
    const KeyBounds bottom = key_bounds_of(p.heads, p.mask, tile.work, first + kWarpThreads - 1);
    seen = key_bounds_of(p.heads, p.mask, tile.work, own);
    seen_by_all = {bottom.begin, top.end};
    seen_by_some = {top.begin, bottom.end};
    n_first = tile.blocks.n_block_max - 1;
    n_last = tile.blocks.n_block_min;
    whole_begin = max((bottom.begin + kTileN - 1) / kTileN, n_last);
    whole_end = top.end / kTileN;
  }

  const FwdContext<T>& c;
  const FwdParams& p;
  const int q_tile;
  const int warp;     // of the warpgroup
  const int row;      // of the Q tile
  const int factors;  // the named barrier
  const ptx::TmemAddr scores;
  RowSoftmax softmax;
  bool exists = false;      // the thread's row is the sequence's
  ptx::Election elected{};  // who arrives
  const float scale_log2;   // of the scores, which softcap leaves in its units
  const float lowest_max;
  KeyBounds seen, seen_by_all, seen_by_some;
  int n_first, n_last;         // blocks of the tile, from the first to the last
  int whole_begin, whole_end;  // those that all rows of the warp see whole
  PhasesOf<T, kOneStage, kSFull, kStatsEmpty> phases;  // of this Q tile's barriers
};

}  // namespace fa4::sm100
