// The MMA warp: issues every product, for both CTAs of a pair from the leading one, and says by
// commits when each is done.
//
//   ... | dV(i) | S(i + 1) | dK(i) | dQ(i) | dP(i + 1) | dV(i + 1) | ...
//
// so that P of a block is computed under dK and dQ of the one before, and dS under dV and the next
// S. Where P is apart, S(i + 1) comes before dV(i): it waits for no P. Where dQ lies over S, dQ(i)
// comes after dP(i + 1): S(i + 1) is in registers by then. In turn: S, dP, dV, dK and dQ of a
// block, then the next one's. Where works are split, those for dv leave out what they do not need
// of the order of P apart, and the others have dP(i + 1), whose dO is free early, before S(i + 1):
//
//   ... | dK(i) | dQ(i) | dP(i + 1) | S(i + 1) | dK(i + 1) | ...
#pragma once

#include "kernels/sm100/backward/context.cuh"
#include "kernels/tile/smem_descriptor.cuh"
#include "kernels/tile/umma_instruction.cuh"
#include "kernels/tile/unroll.cuh"

namespace fa4::sm100::bwd {

template <BwdTraits T, WorkKind kKind>
class MmaIssuer {
 public:
  __device__ explicit MmaIssuer(const Context<T, kKind>& context)
      : c(context),
        tmem{*reinterpret_cast<uint32_t*>(context.smem + context.kSmem.tmem)},
        base(__shfl_sync(0xffffffffu, ptx::smem_addr(context.smem).value >> 4 & 0x3fff, 0)) {}

  // All lanes run it, so that ptxas knows all but the products to be the same in each; one lane
  // issues.
  __device__ void run() {
    const int steps = c.work().steps;
    if (steps == 0 || !c.group.leads()) return;
    c.wait(kKFull, 0, 0);
    if constexpr (in_turn(T)) {
      issue_in_turn(steps);
    } else if constexpr (kKind == WorkKind::kDkAndDq) {
      issue_dk_and_dq(steps);
    } else if constexpr (kKind == WorkKind::kDv) {
      issue_dv_alone(steps);
    } else {
      issue_ahead(steps);
    }
    commit(kSumsFull);
  }

 private:
  using QkDescriptor = UmmaDescriptor<qk_slab(T)>;
  using VDescriptor = UmmaDescriptor<v_slab(T)>;
  static constexpr int kGroup = T.cta_group;
  static constexpr bool kPair = kGroup > 1, kLateDq = dq_over_s(T);
  static constexpr int kSteps = 4;  // products of one statement, where a slab has as many
  static constexpr int kRows = block_rows(T);
  static constexpr int kQStages = q_stages(T, kKind), kDoutStages = dout_stages(T, kKind);
  static constexpr uint32_t kScores = umma_instruction(T.element, group_keys(T), kRows, false);
  static constexpr uint32_t kDv = umma_instruction(T.element, group_keys(T), T.head_dim_v, true);
  static constexpr uint32_t kDk = umma_instruction(T.element, group_keys(T), T.head_dim, true);
  static constexpr uint32_t kDq = umma_instruction(T.element, kRows, T.head_dim, true, true);
  static constexpr uint32_t kTransposedDq =
      umma_instruction(T.element, kDqLanes, kRows, true, true);

  static constexpr TmemLayout kTmem = Context<T, kKind>::kTmem;
  static constexpr int kQSumBytes = kPair ? q_sum_bytes(T) : q_bytes(T);
  static constexpr int kDoutSumBytes = kPair ? dout_sum_bytes(T) : dout_bytes(T);

  __device__ void issue_ahead(int steps) {
#pragma unroll 1
    for (int i = -1; i < steps; ++i) {
      const bool has_block = i >= 0, has_next = i + 1 < steps;
      if (T.apart && has_next) issue_s(i + 1);
      if (has_block) issue_dv(i, has_next);
      if (kLateDq && has_block) wait_for(kDqFree);
      if (!T.apart && has_next) issue_s(i + 1);
      if (has_block) issue_dk(i);
      if (!kLateDq && has_block) issue_dq(i);
      if (i < 0) c.wait(kVFull, 0, 0);
      if (has_next) issue_dp(i + 1);
      if (kLateDq && has_next) wait_for(kSFree);
      if (kLateDq && has_block) issue_dq(i);
    }
  }

  __device__ void issue_in_turn(int steps) {
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      wait_for(kDqFree);
      issue_s(i);
      if (i == 0) c.wait(kVFull, 0, 0);
      wait_for(kSFree);
      issue_dp(i);
      issue_dv(i, i + 1 < steps);
      issue_dk(i);
      issue_dq(i);
    }
  }

  __device__ void issue_dv_alone(int steps) {
#pragma unroll 1
    for (int i = -1; i < steps; ++i) {
      const bool has_next = i + 1 < steps;
      if (has_next) issue_s(i + 1);
      if (i >= 0) issue_dv(i, has_next);
    }
  }

  __device__ void issue_dk_and_dq(int steps) {
    issue_s(0);
    c.wait(kVFull, 0, 0);
    issue_dp(0);
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      issue_dk(i);
      issue_transposed_dq();
      if (i + 1 == steps) break;
      issue_dp(i + 1);
      issue_s(i + 1);
    }
  }

  __device__ void commit(int kind, int stage = 0) const {
    if (ptx::elect_sync()) c.group.commit(c.barrier(kind, stage));
  }
  // For what other threads did with tensor memory.
  __device__ void wait_for(int kind) {
    phases.wait(c, kind);
    ptx::tcgen05_fence_after_thread_sync();
  }

  // The stage of step `i` of a ring, when it has been loaded.
  template <int kStages>
  __device__ int wait_for_stage(int kind, int i) const {
    const int stage = i % kStages;
    c.wait(kind, stage, i / kStages & 1);
    return stage;
  }

  // Sᵀ = K Qᵀ - lse. S is free when dV of the P in its place was issued, or compute has loaded it.
  __device__ void issue_s(int i) {
    const int stage = wait_for_stage<kQStages>(kQFull, i);
    if constexpr (T.apart) wait_for(kSFree);
    multiply_scores<QkDescriptor, T.head_dim>(c.kTmem.s, c.kSmem.k, c.kSmem.q + stage * q_bytes(T));
    if constexpr (takes_lse_off(T)) take_off(c.kTmem.s, c.kSmem.lse, kLseFull);
    commit(kSFull);
    if constexpr (kPair || kKind == WorkKind::kDv) commit(kQEmpty, stage);
  }

  // dPᵀ = V dOᵀ - delta. dP of the block before is in registers, since its dK was issued; dQ in its
  // place must be.
  __device__ void issue_dp(int i) {
    const int stage = wait_for_stage<kDoutStages>(kDoutFull, i);
    if constexpr (!T.apart && !kLateDq && !in_turn(T)) wait_for(kDqFree);
    multiply_scores<VDescriptor, T.head_dim_v>(c.kTmem.dp, c.kSmem.v,
                                               c.kSmem.dout + stage * dout_bytes(T));
    take_off(c.kTmem.dp, c.kSmem.delta, kDeltaFull);
    commit(kDpFull);
    if constexpr (kPair || kKind == WorkKind::kDkAndDq) commit(kDoutEmpty, stage);
  }

  // D -= a number of each query: a step more, whose operands lie without a swizzle, 128 bytes from
  // eight rows to the next. It comes last, so that the terms have the time of the others to come.
  __device__ void take_off(int d, int terms, int kind) {
    constexpr uint32_t kHighWord = 1u << 14 | 8 * 16 >> 4;
    constexpr uint32_t kTerms = umma_instruction(Element::kBF16, group_keys(T), kRows, false);
    phases.wait(c, kind);
    if (ptx::elect_sync()) {
      ptx::tcgen05_mma_f16_ss<kGroup, 1, 0, 0, 0, 0>(
          tmem + d, base + (kKeys << 16) + (c.kSmem.minus_ones >> 4),
          base + (q_rows(T) << 16) + (terms >> 4), kHighWord, kTerms, true);
    }
  }

  // dV += Pᵀ dO
  __device__ void issue_dv(int i, bool has_next) {
    constexpr int kStages = kPair ? T.sum_stages : kDoutStages;
    const int stage = kPair                    ? wait_for_stage<kStages>(kDoutSumFull, i)
                      : kKind == WorkKind::kDv ? wait_for_stage<kStages>(kDoutFull, i)
                                               : i % kStages;
    wait_for(kPFull);
    add_up<VDescriptor, kDv, kTmem.p_stride>(c.kTmem.dv, c.kTmem.p,
                                             c.kSmem.dout_sum + stage * kDoutSumBytes, i > 0);
    commit(kPair ? kDoutSumEmpty : kDoutEmpty, stage);
    if (T.apart && has_next) commit(kPFree);
  }

  // dK += dSᵀ Q
  __device__ void issue_dk(int i) {
    constexpr int kStages = kPair ? T.sum_stages : kQStages;
    const int stage = kPair ? wait_for_stage<kStages>(kQSumFull, i) : i % kStages;
    wait_for(kDsFull);
    add_up<QkDescriptor, kDk, own_rows(T)>(c.kTmem.dk, c.kTmem.ds,
                                           c.kSmem.q_sum + stage * kQSumBytes, i > 0);
    commit(kPair ? kQSumEmpty : kQEmpty, stage);
  }

  // dQ = dS K: the contracted dimension, the keys of the group, runs over rows of both operands.
  __device__ void issue_dq(int i) {
    if constexpr (kPair) {
      if (i == 0) c.wait(kKSumFull, 0, 0);
      phases.wait(c, kDsRelayed);
    }
    if constexpr (T.apart) wait_for(kDqFree);
    constexpr int kStep = kMmaK * QkDescriptor::kRowBytes / 16;
    const uint32_t ds = base + (ds_slab_bytes(T) >> 4 << 16) + (c.kSmem.ds >> 4);
    const uint32_t k =
        base + (group_keys(T) * QkDescriptor::kRowBytes >> 4 << 16) + (c.kSmem.k_sum >> 4);
    unroll<group_keys(T) / (kSteps * kMmaK)>([&](auto part) {
      constexpr int kBegin = part.value * kSteps * kStep;
      if (ptx::elect_sync()) {
        ptx::tcgen05_mma_f16_ss<kGroup, kSteps, kBegin, kStep, kBegin, kStep>(
            tmem + c.kTmem.dq, ds, k, QkDescriptor::kHighWord, kDq, part.value > 0);
      }
    });
    commit(kDqFull);
    if constexpr (kLateDq) commit(kDsFree);
  }

  // dQᵀ = Kᵀ dSᵀ: with a column a lane a block of 64 queries takes all lanes of tensor memory.
  __device__ void issue_transposed_dq() {
    wait_for(kDqFree);
    constexpr int kStep = kMmaK * QkDescriptor::kRowBytes / 16;
    constexpr int kSlabBytes = kKeys * QkDescriptor::kRowBytes;
    const uint32_t ds = base + (ds_slab_bytes(T) >> 4 << 16) + (c.kSmem.ds >> 4);
    const uint32_t k = base + (kSlabBytes >> 4 << 16) + (c.kSmem.k >> 4);
    unroll<dq_products(T)>([&](auto product) {
      constexpr int kFirst = product.value * kDqLanes / qk_slab(T) * kSlabBytes / 16;
      unroll<kKeys / (kSteps * kMmaK)>([&](auto part) {
        constexpr int kBegin = part.value * kSteps * kStep;
        if (ptx::elect_sync()) {
          ptx::tcgen05_mma_f16_ss<kGroup, kSteps, kFirst + kBegin, kStep, kBegin, kStep>(
              tmem + (c.kTmem.dq + product.value * kRows), k, ds, QkDescriptor::kHighWord,
              kTransposedDq, part.value > 0);
        }
      });
    });
    commit(kDqFull);
  }

  // The group's keys x the block's queries, both operands' rows along the contracted dimension.
  template <class Descriptor, int kHeadDim>
  __device__ void multiply_scores(int d, int a, int b) const {
    constexpr int kSlab = Descriptor::kRowBytes / kElementBytes;
    unroll<kHeadDim / kSlab>([&](auto slab) {
      constexpr int kA = slab.value * kKeys * Descriptor::kRowBytes / 16;
      constexpr int kB = slab.value * q_rows(T) * Descriptor::kRowBytes / 16;
      constexpr int kStep = kMmaK * kElementBytes / 16;
      if (ptx::elect_sync()) {
        ptx::tcgen05_mma_f16_ss<kGroup, kSlab / kMmaK, kA, kStep, kB, kStep>(
            tmem + d, k_major(a), k_major(b), Descriptor::kHighWord, kScores, slab.value > 0);
      }
    });
  }

  // The first operand from tensor memory, where a compute warpgroup has left its queries of it; the
  // second one's contracted dimension, the queries, runs over its rows.
  template <class Descriptor, uint32_t kInstruction, int kStride>
  __device__ void add_up(int d, int a, int b, bool accumulate) const {
    const uint32_t words = base + (kRows * Descriptor::kRowBytes >> 4 << 16) + (b >> 4);
    unroll<kComputeWarpgroups>([&](auto part) {
      constexpr int kOwnSteps = own_rows(T) / kMmaK;
      constexpr int kStep = kMmaK * Descriptor::kRowBytes / 16;
      if (ptx::elect_sync()) {
        ptx::tcgen05_mma_f16_ts<kGroup, kOwnSteps, part.value * kStride, kMmaK / 2,
                                part.value * kOwnSteps * kStep, kStep>(
            tmem + d, tmem + a, words, Descriptor::kHighWord, kInstruction,
            accumulate || part.value > 0);
      }
    });
  }

  // The low word of a descriptor: where a tile begins, and 16 bytes from one of its slabs to the
  // next, which is not used.
  __device__ uint32_t k_major(int tile) const { return base + (1 << 16) + (tile >> 4); }

  const Context<T, kKind>& c;
  const ptx::TmemAddr tmem;
  const uint32_t base;  // of shared memory, in a descriptor
  PhasesOf<T, kSFree, kPFull, kLseFull, kDeltaFull, kDsFull, kDsRelayed, kDqFree> phases;
};

}  // namespace fa4::sm100::bwd
