// The reducing warpgroup: dQ = dS K of each step, added to the sums in the workspace.
#pragma once

#include "kernels/ptx/global.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/wgmma_backward.cuh"
#include "kernels/sm90/backward/context.cuh"
#include "kernels/tile/smem_descriptor.cuh"

namespace fa4::sm90::bwd {

template <BwdTraits T>
class Reducer {
 public:
  __device__ explicit Reducer(const Context<T>& context)
      : c(context), lane(threadIdx.x % kWarpgroupThreads) {}

  __device__ void run() {
    const Work w = c.work();
    if (w.steps == 0) return;
    if (c.params.workspace.dq == nullptr) return release_all(w.steps);
    wait(c.barrier(kKFull), 0);
    const int64_t block = first_query_block(c.params, w.sequence, w.head * c.params.group);
    float* to = c.params.workspace.dq + (block + w.rows.n_block_min) * kBlockFloats + 4 * lane;
    const int blocks = w.blocks(), skipped = head_blocks(c.params) - blocks;
    int left = blocks;  // of this head
    Turn turn{nullptr, 0};
    if (c.params.workspace.turns != nullptr) {
      turn = {c.params.workspace.turns + block + w.rows.n_block_min, w.rows.n_block_min};
    }
#pragma unroll 1
    for (int step = w.steps; step > 0; --step) {
      c.pipeline(kDsFull).consumer_wait(ring);
      if (turn.of_block != nullptr) take(turn);
#pragma unroll 1
      for (int part = 0; part < kParts; ++part) {
        multiply(part);
        if (part == kParts - 1 && lane % 32 == 0) c.pipeline(kDsFull).consumer_release(ring);
        add(to + part * kColumns * kQueryRows);
      }
      if (turn.of_block != nullptr) give(turn);
      ring.advance();
      to += kBlockFloats;
      if (--left == 0) {
        left = blocks;
        to += int64_t{skipped} * kBlockFloats;
        if (turn.of_block != nullptr) {
          turn = {turn.of_block + skipped, turn.m - blocks};
        }
      }
    }
  }

 private:
  // Deterministic: whose turn it is to add to a block of dq, and the block's number in its
  // sequence.
  struct Turn {
    uint32_t* of_block;
    int m;
  };

  // Of the CTAs whose keys block m sees, how many add before this one: those of the keys before, or
  // of the keys behind. Both follow from which blocks a CTA visits (find_work).
  __device__ uint32_t rank(int m) const {
    const Work& w = c.work();
    const Sequence& s = w.sequence;
    const int position = m * kQueryRows + s.seqlen_k - s.seqlen_q;
    if (c.params.last_keys_first == 0) {
      const int first = position - c.params.mask.window_left;
      return w.n_block - (first > 0 ? first / kKeys : 0);
    }
    const int end = position + kQueryRows + c.params.mask.window_right;
    return (end < s.seqlen_k ? end - 1 : s.seqlen_k - 1) / kKeys - w.n_block;
  }

  __device__ void take(const Turn& turn) const {
    if (lane == 0) {
      const uint32_t own = rank(turn.m);
      while (ptx::ld_acquire_gpu(turn.of_block) != own) {
      }
    }
    ptx::barrier_sync(kTurn, kWarpgroupThreads);
  }
  __device__ void give(Turn& turn) const {
    ptx::barrier_sync(kTurn, kWarpgroupThreads);
    if (lane == 0) ptx::red_release_gpu_add(turn.of_block, 1);
    ++turn.of_block, ++turn.m;
  }

  // dq is not wanted.
  __device__ void release_all(int steps) {
#pragma unroll 1
    for (; steps > 0; --steps) {
      c.pipeline(kDsFull).consumer_wait(ring);
      if (lane % 32 == 0) c.pipeline(kDsFull).consumer_release(ring);
      ring.advance();
    }
  }

  using Wgmma = ptx::WgmmaRowsStep<dq_columns(T), T.element>;
  using DsDescriptor = WgmmaDescriptor<kQueryRows>;
  using KDescriptor = WgmmaDescriptor<slab_columns(T.head_dim)>;
  static constexpr int kColumns = dq_columns(T), kParts = T.head_dim / kColumns;
  static constexpr int kBlockFloats = kQueryRows * T.head_dim;
  static constexpr int kMmaK = 16;

  // Columns of `part`: both operands' contracted dimension, the keys, runs over rows.
  __device__ void multiply(int part) {
    constexpr int kSlabBytes = kKeys * KDescriptor::kRowBytes;
    const uint32_t ds_lo =
        DsDescriptor::mn_major(c.smem_address(c.kSmem.ds + ring.stage() * kDsBytes), kDsBytes);
    const uint32_t k_lo = KDescriptor::mn_major(c.smem_address(c.kSmem.k), kSlabBytes);
    const int first = part * kColumns / slab_columns(T.head_dim) * kSlabBytes;
    constexpr int kStepA = kMmaK * DsDescriptor::kRowBytes, kStepB = kMmaK * KDescriptor::kRowBytes;
    ptx::wgmma_fence();
    Wgmma::template start<kStepA, kStepB>(rDQ, DsDescriptor::descriptor_at(ds_lo),
                                          KDescriptor::descriptor_at(k_lo, first));
#pragma unroll
    for (int i = 4; i < kKeys / kMmaK; i += 4) {
      Wgmma::template run<kStepA, kStepB>(rDQ, DsDescriptor::descriptor_at(ds_lo, i * kStepA),
                                          KDescriptor::descriptor_at(k_lo, first + i * kStepB));
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rDQ);
  }

  // 512 bytes in a row from each warp.
  __device__ void add(float* to) const {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      ptx::red_add_v4(to + j * 4 * kWarpgroupThreads, rDQ[4 * j], rDQ[4 * j + 1], rDQ[4 * j + 2],
                      rDQ[4 * j + 3]);
    }
  }

  const Context<T>& c;
  const int lane;  // in the warpgroup
  RingState<T> ring;
  float rDQ[kColumns / 2];
};

}  // namespace fa4::sm90::bwd
