// The MMA thread: issues every product, for both CTAs of a pair from the leading one, and says by
// commits when each is done.
//
// A step is a block of keys of a tile. The tensor core runs
//   ... | P V of step i, Q tile 0 | Q K of step i + 1, tile 0 | P V of step i, tile 1 | Q K ... |
// also from one work tile to the next, so that either softmax works under the other's products.
// Where P is apart, Q K of step i + 1 comes before P V of step i of the same Q tile; but not from
// one tile to the next where out takes the place of Q, which the next one's Q waits for.
#pragma once

#include "kernels/geometry/step_sequence.h"
#include "kernels/sm100/forward/context.cuh"
#include "kernels/tile/smem_descriptor.cuh"
#include "kernels/tile/umma_instruction.cuh"
#include "kernels/tile/unroll.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
class MmaIssuer {
 public:
  __device__ explicit MmaIssuer(const FwdContext<T>& context)
      : c(context),
        tmem{*reinterpret_cast<uint32_t*>(context.smem + context.kSmem.tmem)},
        qk_base(__shfl_sync(0xffffffffu, QkDescriptor::k_major(c.smem_address(0)), 0)),
        v_base(__shfl_sync(0xffffffffu, VDescriptor::mn_major(c.smem_address(0), kVSlabBytes), 0)) {
  }

  // All lanes run it, so that ptxas knows all but the products to be the same in each; one issues.
  __device__ void run() {
    TileReader<FwdContext<T>> tiles(c);
    QTiles tile = tiles.next();
    Steps steps(tile.blocks);
    Step before{};
#pragma unroll 1
    while (tile.is_valid() || before.any()) {
      if (tile.is_valid() && steps.is_done()) {
        tile = tiles.next();
        steps = Steps(tile.blocks);
      }
#pragma unroll 1
      for (int left = steps.take_middle_run(); left > 0; --left) {
        if (c.group.leads()) issue(Steps::kMiddle, Steps::kMiddle);
      }
      // Nothing for a tile without blocks: the step before must not wait for one further on, which
      // may come only when correction is done with the tile before.
      Step step{};
      if (!steps.is_done()) {
        step = steps.step();
        steps.advance();
      }
      if (c.group.leads()) issue(before, step);
      before = step;
    }
  }

 private:
  using Steps = StepSequence<T.q_tiles>;
  using QkDescriptor = UmmaDescriptor<slab_columns(T.head_dim)>;
  using VDescriptor = UmmaDescriptor<slab_columns(v_columns(T))>;
  static constexpr int kVSlabBytes = kTileN * VDescriptor::kRowBytes;
  static constexpr uint32_t kQkInstruction =
      umma_instruction(T.element, kTileRows* T.cta_group, kTileN, false);
  static constexpr uint32_t kPvInstruction =
      umma_instruction(T.element, kTileRows* T.cta_group, T.head_dim_v, true);

  // P V of the step before and Q K of this one, tile by tile. V of the one lies before K of the
  // other in the ring.
  __device__ void issue(const Step& before, const Step& step) {
    const KvRing<T> v = kv;
    if (before.any()) {
      wait_for(v);
      kv.advance();
    }
    const KvRing<T> k = kv;
    if (step.any()) kv.advance();
    const uint32_t v_words = v_descriptor(v.stage), k_words = k_descriptor(k.stage);
#pragma unroll
    for (int i = 0; i < T.q_tiles; ++i) {
      if (T.p_apart && !waits_for_out(i, step)) issue_qk(i, step, k, k_words);
      issue_pv(i, before, v, v_words);
      if (!T.p_apart || waits_for_out(i, step)) issue_qk(i, step, k, k_words);
    }
  }
  // Waits until a block is there; where threads copied it, a fence lets the tensor core see their
  // writes.
  __device__ void wait_for(const KvRing<T>& block) const {
    c.wait(kKvFull, block.stage, block.phase);
    if constexpr (T.pages == Pages::kRows) ptx::fence_proxy_async_shared();
  }
  __device__ static bool waits_for_out(int q_tile, const Step& step) {
    return out_takes_q(T) && (step.first >> q_tile & 1) != 0;
  }

  __device__ void issue_pv(int q_tile, const Step& step, const KvRing<T>& v, uint32_t v_words) {
    const uint32_t bit = 1u << q_tile;
    if (step.active & bit) {
      multiply_pv(q_tile, v_words, (step.first & bit) == 0);
      if constexpr (T.p_apart) commit(kPFree, q_tile);
      if (step.last & bit) commit(kOFull, q_tile);
    }
    if (q_tile == T.q_tiles - 1 && step.any()) commit(kKvEmpty, v.stage);
  }

  __device__ void issue_qk(int q_tile, const Step& step, const KvRing<T>& k, uint32_t k_words) {
    const uint32_t bit = 1u << q_tile;
    if (step.active & bit) {
      if (q_tile == 0 || (step.active & 1) == 0) wait_for(k);
      if (step.first & bit) phases.wait(c, kQFull, q_tile);
      multiply_qk(q_tile, k_words);
      commit(kSFull, q_tile);
      if (step.last & bit) commit(kQEmpty, q_tile);
    }
    if (q_tile == T.q_tiles - 1 && step.any()) commit(kKvEmpty, k.stage);
  }

  __device__ void commit(int kind, int stage) const {
    if (ptx::elect_sync()) c.commit(kind, stage);
  }

  // Low words of descriptors.
  __device__ uint32_t q_descriptor(int q_tile) const {
    return qk_base + ((c.kSmem.q + q_tile * q_tile_bytes(T)) >> 4);
  }
  __device__ uint32_t k_descriptor(int stage) const {
    return qk_base + (c.kv_place(stage, true) >> 4);
  }
  __device__ uint32_t v_descriptor(int stage) const {
    return v_base + (c.kv_place(stage, false) >> 4);
  }

  // Products are issued a few at a time, two or four by one statement: ptxas makes a branch around
  // more, which costs more than they do.
  static constexpr int kStepBytes = kMmaK * kElementBytes;  // of a row of Q or K
  static constexpr int kSAndPColumns = s_and_p_columns(T);
  static constexpr int kVStepBytes = kMmaK * VDescriptor::kRowBytes;

  // S = Q Kᵀ. S is free when P V of the P in its place was issued before, or softmax has loaded it.
  __device__ void multiply_qk(int q_tile, uint32_t k_words) {
    if constexpr (T.p_apart) {
      phases.wait(c, kSFree, q_tile);
      ptx::tcgen05_fence_after_thread_sync();
    }
    const uint32_t q_words = q_descriptor(q_tile);
    unroll<num_slabs(T.head_dim)>([&](auto slab) {
      constexpr int kSteps = slab_columns(T.head_dim) / kMmaK;
      constexpr int kQSlab = slab.value * kTileRows * QkDescriptor::kRowBytes;
      constexpr int kKSlab = slab.value * k_rows(T) * QkDescriptor::kRowBytes;
      if (ptx::elect_sync()) {
        ptx::tcgen05_mma_f16_ss<T.cta_group, kSteps, kQSlab / 16, kStepBytes / 16, kKSlab / 16,
                                kStepBytes / 16>(tmem + (c.kTmem.s[0] + q_tile * kSAndPColumns),
                                                 q_words, k_words, QkDescriptor::kHighWord,
                                                 kQkInstruction, slab.value > 0);
      }
    });
  }

  // O (+)= P V, in the parts in which P is handed over.
  __device__ void multiply_pv(int q_tile, uint32_t v_words, bool accumulate) {
    const auto phase = phases.next(kPFull, q_tile);  // the other parts have one for each of it
    unroll<T.p_parts.count()>([&](auto part) {
      constexpr int kBegin = T.p_parts.begin(part.value), kEnd = T.p_parts.ends[part.value];
      phase.wait(c, p_barrier(T, part.value), q_tile);
      ptx::tcgen05_fence_after_thread_sync();
      pv_steps<kBegin / kMmaK, kEnd / kMmaK>(q_tile, v_words, part.value > 0 || accumulate);
    });
  }
  template <int kStep, int kEnd>
  __device__ void pv_steps(int q_tile, uint32_t v_words, bool accumulate) const {
    constexpr int kSteps = kEnd - kStep < 4 ? 2 : 4, kPStep = kMmaK / 2;
    if (ptx::elect_sync()) {
      ptx::tcgen05_mma_f16_ts<T.cta_group, kSteps, kStep * kPStep, kPStep, kStep * kVStepBytes / 16,
                              kVStepBytes / 16>(tmem + (c.kTmem.o[0] + q_tile * T.head_dim_v),
                                                tmem + (c.kTmem.p[0] + q_tile * kSAndPColumns),
                                                v_words, VDescriptor::kHighWord, kPvInstruction,
                                                accumulate);
    }
    if constexpr (kStep + kSteps < kEnd) pv_steps<kStep + kSteps, kEnd>(q_tile, v_words, true);
  }

  const FwdContext<T>& c;
  const ptx::TmemAddr tmem;
  const uint32_t qk_base, v_base;  // low words of descriptors of shared memory's begin
  KvRing<T> kv;                    // V of the step before, or K of the first
  PhasesOf<T, T.q_tiles, kPFull, kQFull, kSFree> phases;
};

}  // namespace fa4::sm100
