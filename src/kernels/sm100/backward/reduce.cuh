// The reducing warpgroup: dQ of each step from tensor memory to the sums in the workspace.
#pragma once

#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/global.cuh"
#include "kernels/sm100/backward/context.cuh"

namespace fa4::sm100::bwd {

template <BwdTraits T>
class Reducer {
 public:
  __device__ explicit Reducer(const Context<T>& context)
      : c(context),
        row(threadIdx.x % kWarpgroupThreads % q_rows(T)),
        first_column(threadIdx.x % kWarpgroupThreads / q_rows(T) * kColumnsOfLane),
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
      float r[kChunks][kChunk];
#pragma unroll
      for (int i = 0; i < kChunks; ++i) ptx::tcgen05_ld_32x32b<0>(r[i], dq + i * kChunk);
      ptx::tcgen05_wait_ld();
#pragma unroll
      for (int i = 0; i < kChunks; ++i) ptx::fence_loaded(r[i]);
      ptx::tcgen05_fence_before_thread_sync();
      c.arrive_at_mma(kDqFree);
      const int position =
          steps.m_block() * kRows + static_cast<int>(c.group.rank) * q_rows(T) + row;
      if (p.workspace.dq == nullptr) continue;
      const int64_t first_block = first_query_block(p, w.sequence, steps.head);
      // Of a block that the sequence has: all of its warps count.
      const bool is_block = position / kQueryRows * kQueryRows < w.sequence.seqlen_q;
      uint32_t* counts = is_block && p.workspace.dq_counts != nullptr
                             ? p.workspace.dq_counts + first_block + position / kQueryRows
                             : nullptr;
      const uint32_t turn = counts == nullptr ? 0 : turn_at(steps.m_block());
      if (turn > 0) wait_for_turn(counts, turn);
      if (is_block) add(place(first_block, position), r, counts != nullptr && turn == 0);
      if (counts != nullptr) end_turn(counts);
    }
  }

 private:
  static constexpr int kColumnsOfLane = dk_columns(T);
  static constexpr int kChunk = 16;
  static constexpr int kChunks = kColumnsOfLane / kChunk;

  // Warps that add to a block of the workspace at each turn.
  static constexpr int kBlockWarps = 4 * kQueryRows / q_rows(T);

  __device__ uint32_t turn_at(int m_block) const {
    constexpr int kGroupKeys = T.cta_group * kKeys;
    const Work& w = c.work();
    return turn_of(c.params, w.sequence, w.head, w.first_key / kGroupKeys, m_block, kGroupKeys,
                   kRows);
  }
  __device__ static void wait_for_turn(const uint32_t* counts, uint32_t turn) {
    while (ptx::ld_acquire_gpu(counts) < turn * kBlockWarps) {
    }
  }
  __device__ static void end_turn(uint32_t* counts) {
    __syncwarp();
    if (ptx::elect_sync()) ptx::red_release_gpu_add(counts, 1);
  }

  // Of this lane's first four columns. The sums of a block are (columns / 4, kQueryRows, 4): a warp
  // adds 512 bytes in a row.
  __device__ float* place(int64_t first_block, int position) const {
    const int64_t block = first_block + position / kQueryRows;
    return c.params.workspace.dq + block * kQueryRows * T.head_dim + first_column * kQueryRows +
           position % kQueryRows * 4;
  }

  // The first in turn finds no zeros: its part becomes the sum, in the rows past the sequence's end
  // too, which the block has as zeros.
  __device__ static void add(float* to, const float (&r)[kChunks][kChunk], bool is_first) {
#pragma unroll
    for (int i = 0; i < kColumnsOfLane; i += 4) {
      const float* four = r[i / kChunk] + i % kChunk;
      float* at = to + i * kQueryRows;
      if (is_first) {
        *reinterpret_cast<float4*>(at) = float4{four[0], four[1], four[2], four[3]};
      } else {
        ptx::red_add_v4(at, four[0], four[1], four[2], four[3]);
      }
    }
  }

  const Context<T>& c;
  const int row;           // of this CTA's rows of the block
  const int first_column;  // of dQ in this lane of tensor memory
  const ptx::TmemAddr dq;
};

}  // namespace fa4::sm100::bwd
