// FlashAttention-4's forward for Blackwell: two Q tiles of 128 rows in ping-pong, sixteen warps.
//
// Shared memory (traits.h, smem_layout)          Tensor memory (tmem_layout), 128 lanes
//   Q     q_tiles x 128 rows                           S0 | S1   128 columns each, f32; P, 16 bits,
//   out   q_tiles x 128 rows                                     beside it or over its first half
//   K, V  kv_stages blocks of 128 keys, one ring       O0 | O1   head_dim_v columns each, f32
//   factors, maxima of the rows; tiles; ranks of sequences, where keys are cut; barriers
//
// Barriers (traits.h, barriers):
//
//   schedule   ── tile_full ──▶ every other warp                        ── tile_empty ─▶
//   load       ── q_full ─────▶ mma: S = Q Kᵀ                           ── q_empty (commit) ─▶
//   load       ── kv_full ────▶ mma: S = Q Kᵀ, O += P V                 ── kv_empty (commit) ─▶
//   mma        ── s_full ─────▶ softmax: S to registers, exponentials, P to tensor memory
//   softmax    ── p_full ─────▶ mma: P V of the first keys; correction arrives too
//   softmax    ── p_next ─────▶ mma: P V of the next keys, where P comes in three parts
//   softmax    ── p_rest ─────▶ mma: P V of the other keys
//   softmax    ── factors ────▶ correction: O *= factor, if any (named barriers)
//   softmax    ── stats_full ─▶ correction: a tile's sums and maxima    ── stats_empty ─▶
//   mma        ── o_full ─────▶ correction: O / sum to shared memory
//   correction ── out_full ───▶ store: TMA                              ── out_empty ─▶
//
// Where a tile is a part of the keys of its rows, correction stores O, the sum and the maximum to
// global memory: there is no out in shared memory, and no store.
//
// Three orders need no barrier, because products run in the order of their issue. (The manual
// promises that of products with one accumulator only; that P V has read P before a later Q K
// writes S over it, flash-attention, cuDNN and ThunderKittens rely on too.)
//   1. S may be overwritten once the product of the P in its place has been issued.
//   2. Scores of a block that have arrived mean that P V of the block before is done, so that O may
//      be rescaled, and 3. that correction has read the factors of the block before. (With p_apart
//      p_free says both.)
//
// Where P is beside S (p_apart), Q K of the next block is issued before P V of this one:
//
//   softmax    ── s_free ─────▶ mma: the next S; this one is in registers
//   mma        ── p_free ─────▶ softmax: the next P and factors; P V, and so the factors, are done
#pragma once

#include "kernels/forward/prefetch_maps.cuh"
#include "kernels/sm100/forward/correction.cuh"
#include "kernels/sm100/forward/load.cuh"
#include "kernels/sm100/forward/mma.cuh"
#include "kernels/sm100/forward/output.cuh"
#include "kernels/sm100/forward/schedule.cuh"
#include "kernels/sm100/forward/softmax.cuh"
#include "kernels/tile/shared_base.cuh"

namespace fa4::sm100 {

// It goes through a shuffle where P has barriers of its own: ptxas then adds it to the barriers'
// addresses, where it would choose between two of each.
template <FwdTraits T>
__device__ inline int q_tile_of(Role role) {
  if constexpr (T.p_apart && T.q_tiles > 1) {
    return __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroupThreads, 0);
  }
  return role == Role::kSoftmax0 ? 0 : 1;
}

template <FwdTraits T>
__device__ inline void run(const FwdContext<T>& c, Role role) {
  constexpr RegisterSplit kRegisters = register_split(T);
  switch (role) {
    case Role::kSoftmax0:
    case Role::kSoftmax1:
      ptx::setmaxnreg_inc<kRegisters.softmax>();
      if (T.q_tiles > 1 || role == Role::kSoftmax0) {
        Softmax<T>(c, q_tile_of<T>(role)).run();
      }
      return;
    case Role::kCorrection:
      ptx::setmaxnreg_dec<kRegisters.correction>();
      Correction<T>(c).run();
      return;
    default:
      ptx::setmaxnreg_dec<kRegisters.other>();
      if (role == Role::kMma) MmaIssuer<T>(c).run();
      if (role == Role::kLoad) Loader<T>(c).run();
      if (stores_by_tma(T) && role == Role::kStore) Storer<T>(c).run();
      if (role == Role::kSchedule) Scheduler<T>(c).run();
  }
}

}  // namespace fa4::sm100

namespace fa4 {

template <sm100::FwdTraits T>
__global__ void __launch_bounds__(sm100::kNumThreads, 1)
    fwd_sm100(const __grid_constant__ FwdParams params) {
  static_assert(sm100::why_not(T) == nullptr);
  extern __shared__ __align__(1024) unsigned char smem_base[];
  unsigned char* smem = checked_shared_base(smem_base);
  using Group = sm100::CtaGroup<T.cta_group>;
  Group::announce();
  const sm100::FwdContext<T> context{params, smem, {Group::own_rank()}};
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarpThreads, 0);
  const sm100::Role role = sm100::role_of(warp);
  if (threadIdx.x == 0) initialise_barriers(context.kBarriers, context.barrier(0));
  Group::wait_for_peer();
  if (role == sm100::Role::kMma) {
    Group::allocate(context.smem_address(context.kSmem.tmem), sm100::kTmemColumns);
  }
  if (role == sm100::Role::kLoad && ptx::elect_sync()) prefetch_maps<T.pages>(params.maps);
  Group::sync();

  sm100::run(context, role);

  Group::sync();
  if (role == sm100::Role::kMma) Group::free(sm100::kTmemColumns);
}

}  // namespace fa4
