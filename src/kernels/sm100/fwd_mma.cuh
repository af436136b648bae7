// The MMA thread: issues every product, for both CTAs of a pair from the leading one, and says by
// commits when each is done.
//
// A step is a block of keys of a tile. The tensor core runs
//   ... | P V of step i, Q tile 0 | Q K of step i + 1, tile 0 | P V of step i, tile 1 | Q K ... |
// also from one work tile to the next, so that either softmax works under the other's products.
#pragma once

#include "kernels/sm100/fwd_context.cuh"
#include "kernels/tile/umma_descriptor.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
class MmaIssuer {
 public:
  __device__ explicit MmaIssuer(const Context<T>& context) : c(context) {}

  // By all lanes; one of them issues.
  __device__ void run() {
    TileReader<T> tiles(c);
    Tile tile = tiles.next();
    Blocks blocks = blocks_of<T>(tile);
    Step before{};
    int n = blocks.n_block_max;
#pragma unroll 1
    while (tile.is_valid() || before.any()) {
      if (tile.is_valid() && --n < blocks.n_block_min) {
        tile = tiles.next();
        blocks = blocks_of<T>(tile);
        n = blocks.n_block_max - 1;
      }
      // Nothing for a tile without blocks: the step before must not wait for one further on, which
      // may come only when correction is done with the tile before.
      const bool has_block = tile.is_valid() && n >= blocks.n_block_min;
      const Step step = has_block ? step_of(tile, n) : Step{};
      if (c.leads() && ptx::elect_sync()) issue(before, step);
      advance(before, step);
      before = step;
    }
  }

 private:
  using QkDescriptor = UmmaDescriptor<slab_columns(T.head_dim)>;
  using VDescriptor = UmmaDescriptor<slab_columns(v_columns(T))>;
  static constexpr uint32_t kQkInstruction =
      umma_instruction(T.element, kTileRows* T.cta_group, kTileN, false);
  static constexpr uint32_t kPvInstruction =
      umma_instruction(T.element, kTileRows* T.cta_group, T.head_dim_v, true);

  // Which Q tiles take part in a step; for which it is the first or last of the work tile.
  struct Step {
    bool active[2], first[2], last[2];
    __device__ bool any() const { return active[0] | active[1]; }
  };
  __device__ static Step step_of(const Tile& tile, int n) {
    Step s{};
#pragma unroll
    for (int i = 0; i < T.q_tiles; ++i) {
      s.active[i] = tile.sees(i, n);
      s.first[i] = n == tile.blocks[i].n_block_max - 1;
      s.last[i] = n == tile.blocks[i].n_block_min;
    }
    return s;
  }

  __device__ void issue(const Step& before, const Step& step) {
    PipelineState<T.kv_stages> v = kv, k = kv;
    if (before.any()) {
      c.wait(kKvFull, v.stage(), v.phase());
      k.advance();
    }
    const uint32_t v_words = v_descriptor(v.stage()), k_words = k_descriptor(k.stage());
    bool k_is_there = false;
#pragma unroll
    for (int i = 0; i < T.q_tiles; ++i) {
      if (before.active[i]) multiply_pv(i, v_words, before.first[i], before.last[i]);
      if (i == T.q_tiles - 1 && before.any()) c.commit(kKvEmpty, v.stage());
      if (step.active[i]) {
        if (!k_is_there) c.wait(kKvFull, k.stage(), k.phase());
        k_is_there = true;
        multiply_qk(i, k_words, step.first[i], step.last[i]);
      }
    }
    if (step.any()) c.commit(kKvEmpty, k.stage());
  }

  // The state after issue(), kept by all lanes alike.
  __device__ void advance(const Step& before, const Step& step) {
#pragma unroll
    for (int i = 0; i < T.q_tiles; ++i) {
      p_phase[i] ^= before.active[i];
      q_phase[i] ^= step.active[i] & step.first[i];
    }
    // K of this step follows V of the one before; the next step begins at this step's V.
    if (before.any()) kv.advance();
    if (step.any()) kv.advance();
  }

  __device__ uint32_t q_descriptor(int q_tile) const {
    return QkDescriptor::k_major(c.at(c.kSmem.q + q_tile * q_tile_bytes(T)));
  }
  __device__ uint32_t k_descriptor(int stage) const {
    return QkDescriptor::k_major(c.at(c.kSmem.kv + kv_offset(T, stage, true)));
  }
  __device__ uint32_t v_descriptor(int stage) const {
    constexpr int kSlabBytes = kTileN * VDescriptor::kRowBytes;
    return VDescriptor::mn_major(c.at(c.kSmem.kv + kv_offset(T, stage, false)), kSlabBytes);
  }

  // S = Q Kᵀ. S is free: P V of the P in its place was issued before.
  __device__ void multiply_qk(int q_tile, uint32_t k_words, bool first, bool last) {
    constexpr int kSteps = slab_columns(T.head_dim) / kMmaK, kStepBytes = kMmaK * kElementBytes;
    if (first) c.wait(kQFull, q_tile, q_phase[q_tile]);
    const uint32_t q_words = q_descriptor(q_tile);
#pragma unroll
    for (int i = 0; i < T.head_dim / kMmaK; ++i) {
      const int slab = i / kSteps, in_slab = i % kSteps * kStepBytes;
      ptx::tcgen05_mma_f16_ss<T.cta_group>(
          {static_cast<uint32_t>(c.kTmem.s[q_tile])},
          QkDescriptor::at(q_words, slab * kTileRows * QkDescriptor::kRowBytes + in_slab),
          QkDescriptor::at(k_words, slab * k_rows(T) * QkDescriptor::kRowBytes + in_slab),
          kQkInstruction, i > 0);
    }
    c.commit(kSFull, q_tile);
    if (last) c.commit(kQEmpty, q_tile);
  }

  // O (+)= P V: the keys that are handed over first, then the rest.
  __device__ void multiply_pv(int q_tile, uint32_t v_words, bool first, bool last) {
    constexpr int kStepBytes = kMmaK * VDescriptor::kRowBytes;
    c.wait(kPFull, q_tile, p_phase[q_tile]);
    ptx::tcgen05_fence_after_thread_sync();
#pragma unroll
    for (int i = 0; i < kTileN / kMmaK; ++i) {
      if (i == T.first_keys / kMmaK) {
        c.wait(kPRest, q_tile, p_phase[q_tile]);
        ptx::tcgen05_fence_after_thread_sync();
      }
      ptx::tcgen05_mma_f16_ts<T.cta_group>(
          {static_cast<uint32_t>(c.kTmem.o[q_tile])},
          {static_cast<uint32_t>(c.kTmem.s[q_tile] + i * kMmaK / 2)},
          VDescriptor::at(v_words, i * kStepBytes), kPvInstruction, i > 0 || !first);
    }
    if (last) c.commit(kOFull, q_tile);
  }

  const Context<T>& c;
  PipelineState<T.kv_stages> kv;  // V of the step before, or K of the first
  uint32_t p_phase[2] = {0, 0};
  uint32_t q_phase[2] = {0, 0};
};

}  // namespace fa4::sm100
