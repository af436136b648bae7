// The reducing warpgroup: dQ of each step from tensor memory to the sums in the workspace.
#pragma once

#include "kernels/backward/gradient_rows.cuh"
#include "kernels/base/choice.h"
#include "kernels/ptx/global.cuh"
#include "kernels/sm100/backward/context.cuh"

namespace fa4::sm100::bwd {

// A thread has a row of the block: all columns of it, of a pair half of them.
template <BwdTraits T>
struct RowsOfDq {
  static constexpr int kColumns = dk_columns(T);
  static constexpr int kValues = kColumns;

  int row;           // of this CTA's rows of the block
  int first_column;  // in this lane of tensor memory

  __device__ explicit RowsOfDq(int thread)
      : row(thread % q_rows(T)), first_column(thread / q_rows(T) * kColumns) {}

  // Brings four values that are added together side by side: here they are.
  __device__ void arrange(float (&)[kValues]) const {}

  // To the sums of a block, which are (columns / 4, kQueryRows, 4): a warp adds 512 bytes in a row.
  // `add` takes where four values go, and these.
  template <class Add>
  __device__ void add_all(float* sums, const float (&r)[kValues], const Add& add) const {
    float* const to = sums + first_column * kQueryRows + row % kQueryRows * 4;
#pragma unroll
    for (int i = 0; i < kColumns; i += 4) {
      add(to + i * kQueryRows, r[i], r[i + 1], r[i + 2], r[i + 3]);
    }
  }
};

// Of dQᵀ a thread has columns, kDqLanes apart, of all rows of the block. Four lanes change four
// values with one another, so that each has four columns of a row: a warp adds eight times 64
// bytes.
template <BwdTraits T>
struct ColumnsOfDq {
  static constexpr int kRows = block_rows(T);
  static constexpr int kValues = dq_products(T) * kRows;
  static_assert(kRows == kQueryRows);

  int row = 0;  // the block's first
  int column;

  __device__ explicit ColumnsOfDq(int thread) : column(thread) {}

  __device__ void arrange(float (&r)[kValues]) const {
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      uint32_t x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = __float_as_uint(r[i + j]);
      transpose_quad(x, column % 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) r[i + j] = __uint_as_float(x[j]);
    }
  }

  template <class Add>
  __device__ void add_all(float* sums, const float (&r)[kValues], const Add& add) const {
    float* const to = sums + (column / 4 * kQueryRows + column % 4) * 4;
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      add(to + (i / kRows * (kDqLanes / 4) * kQueryRows + i % kRows) * 4, r[i], r[i + 1], r[i + 2],
          r[i + 3]);
    }
  }
};

template <BwdTraits T, WorkKind kKind>
class Reducer {
 public:
  __device__ explicit Reducer(const Context<T, kKind>& context)
      : c(context),
        share(threadIdx.x % kWarpgroupThreads),
        dq{first_lane() | static_cast<uint32_t>(context.kTmem.dq)} {}

  // All of dQ is loaded before any of it is added, so that its place is free early.
  __device__ void run() {
    const Work& w = c.work();
    const BwdParams& p = c.params;
    PhasesOf<T, kDqFull> phases;
#pragma unroll 1
    for (Steps steps(w, p.group); !steps.is_done(); steps.advance(w)) {
      phases.wait(c, kDqFull);
      ptx::tcgen05_fence_after_thread_sync();
      float r[Share::kValues];
      load(r);
      ptx::tcgen05_fence_before_thread_sync();
      c.arrive_at_mma(kDqFree);
      share.arrange(r);
      const int position =
          steps.m_block() * block_rows(T) + static_cast<int>(c.group.rank) * q_rows(T) + share.row;
      if (p.workspace.dq == nullptr) continue;
      const int64_t block = first_query_block(p, w.sequence, steps.head) + position / kQueryRows;
      // Whether the sequence has this block. If so all of its warps count, even one whose rows lie
      // past the end.
      const bool is_block = position / kQueryRows * kQueryRows < w.sequence.seqlen_q;
      uint32_t* counts =
          is_block && p.workspace.dq_counts != nullptr ? p.workspace.dq_counts + block : nullptr;
      const uint32_t turn = counts == nullptr ? 0 : turn_at(steps.m_block());
      if (turn > 0) wait_for_turn(counts, turn);
      if (is_block) add(block, r, counts != nullptr && turn == 0);
      if (counts != nullptr) end_turn(counts);
    }
  }

 private:
  using Share = Choice<T.split, ColumnsOfDq<T>, RowsOfDq<T>>;

  // Warps that add to a block of the workspace at each turn.
  static constexpr int kBlockWarps = 4 * kQueryRows / q_rows(T);

  __device__ void load(float (&r)[Share::kValues]) const {
    constexpr int kChunk = 16;
    static_assert(Share::kValues % kChunk == 0);
    auto& chunks = reinterpret_cast<float(&)[Share::kValues / kChunk][kChunk]>(r);
#pragma unroll
    for (int i = 0; i < Share::kValues / kChunk; ++i) {
      ptx::tcgen05_ld_32x32b<0>(chunks[i], dq + i * kChunk);
    }
    ptx::tcgen05_wait_ld();
#pragma unroll
    for (int i = 0; i < Share::kValues / kChunk; ++i) ptx::fence_loaded(chunks[i]);
  }

  __device__ uint32_t turn_at(int m_block) const {
    constexpr int kGroupKeys = T.cta_group * kKeys;
    const Work& w = c.work();
    return turn_of(c.params, w.sequence, w.head, w.first_key / kGroupKeys, m_block, kGroupKeys,
                   block_rows(T));
  }
  __device__ static void wait_for_turn(const uint32_t* counts, uint32_t turn) {
    while (ptx::ld_acquire_gpu(counts) < turn * kBlockWarps) {
    }
  }
  __device__ static void end_turn(uint32_t* counts) {
    __syncwarp();
    if (ptx::elect_sync()) ptx::red_release_gpu_add(counts, 1);
  }

  // The first in turn finds no zeros: its part becomes the sum, in the rows past the sequence's end
  // too, which the block has as zeros.
  __device__ void add(int64_t block, const float (&r)[Share::kValues], bool is_first) const {
    float* const sums = c.params.workspace.dq + block * kQueryRows * T.head_dim;
    share.add_all(sums, r, [&](float* to, float x, float y, float z, float w) {
      if (is_first) {
        *reinterpret_cast<float4*>(to) = float4{x, y, z, w};
      } else {
        ptx::red_relaxed_gpu_add_v4_f32(to, x, y, z, w);
      }
    });
  }

  const Context<T, kKind>& c;
  const Share share;
  const ptx::TmemAddr dq;
};

}  // namespace fa4::sm100::bwd
