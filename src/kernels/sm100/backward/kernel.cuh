// FlashAttention-4's backward for Blackwell: sixteen warps. A CTA has 128 keys of one key head, a
// pair of CTAs 256, and visits the blocks of 128 queries of its group's heads that see them, so
// that dK and dV add up in tensor memory; dQ adds up in f32 in global memory. Head dimensions whose
// dK and dV do not fit it together are split: works for dK and dQ, and works for dV, which need
// neither V nor dS, in blocks of 64 queries.
//
// Shared memory (layout.h, smem_layout)          Tensor memory (tmem_layout), 128 lanes
//   K, V     128 rows                                S    128 columns, f32; P, 16 bits, over it
//   Q, dO    stages of 128 rows, a pair's 64         dP   128 columns, f32; dS, 16 bits, over it
//   dSᵀ      128 queries, a pair's 64, of all keys   dV   head_dim_v columns
//   of a pair half the columns of K, Q and dO        dK   head_dim columns
//            again (k_sum, q_sum, dout_sum)          dQ   over dP; a pair's over S
//   of each row -lse log2(e) and delta; -1,          apart: P and dQ have columns of their own
//            lse and delta in terms: operands
//   Work; barriers                                 split: S, dP, dK, dQᵀ; or S, P, dV
//
// Scores lie transposed, a key a lane: P and dS go from registers to tensor memory as the first
// operands of dV += Pᵀ dO and dK += dSᵀ Q; only dQ = dS K takes dS through shared memory.
//
// Barriers (layout.h, barriers):
//
//   load    ── stats_full ─────────▶ statistics: lse, delta         ── stats_empty ──────────▶
//   load    ── k_full, q_full ─────▶ mma: Sᵀ = K Qᵀ - lse           ── q_empty (after dK) ───▶
//   statistics ── lse_full ────────▶ the same                       ── s_full ───────────────▶
//   load    ── v_full, dout_full ──▶ mma: dPᵀ = V dOᵀ - delta       ── dout_empty (after dV) ▶
//   statistics ── delta_full ──────▶ the same                       ── dp_full ──────────────▶
//   mma     ── s_full ─────────────▶ compute: P to tensor memory
//   compute ── p_full ─────────────▶ mma: dV += Pᵀ dO
//   mma     ── dp_full ────────────▶ compute: dS to tensor and shared memory
//   compute ── ds_full ────────────▶ mma: dK += dSᵀ Q, dQ = dS K
//   mma     ── dq_full ────────────▶ reduce: to registers           ── dq_free ──────────────▶
//                                    and from there to global memory
//   mma     ── sums_full ──────────▶ compute: dV and dK to global memory
//   apart:  compute ── s_free ─────▶ mma: the next S;   mma ── p_free ──▶ compute: the next P
//   pair:   load ── k_sum_full, q_sum_full, dout_sum_full ──▶ mma: dQ, dK, dV; q_empty and
//           dout_empty come after S and dP, q_sum_empty and dout_sum_empty after dK and dV
//           compute ── ds_peer ────▶ the other CTA's relay ── ds_relayed ──▶ mma: dQ
//   split:  works for dK and dQ give dO back after dP, those for dV Q after S
//   a pair's dQ over S:  compute ── s_free ──▶ mma: dQ;  mma ── ds_free ──▶ compute: the next dS
//
// A compute warp arrives by itself: it reads and writes its own 32 lanes and its warpgroup's own
// half of the columns, and what it writes over S or dP lies in columns that it has loaded. (Where a
// pair's dQ or dP lies over half of S, P of the second warpgroup lies in columns of the first one's
// S, whose warps it waits for.) Products run in the order of their issue, as in the forward
// (docs/kernels/fwd_sm100.md): that is why S may overwrite the P whose dV was issued before, and dQ
// the dS whose dK was. A dP that has arrived means that every product issued before it is done, dQ
// of the block before among them: dS in shared memory may be written.
#pragma once

#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/sm100/backward/compute.cuh"
#include "kernels/sm100/backward/load.cuh"
#include "kernels/sm100/backward/mma.cuh"
#include "kernels/sm100/backward/reduce.cuh"
#include "kernels/sm100/backward/relay.cuh"
#include "kernels/sm100/backward/statistics.cuh"
#include "kernels/tile/shared_base.cuh"

namespace fa4::sm100::bwd {

// In a deterministic order a CTA waits for those of earlier keys. These must have started, so that
// work comes in the order in which CTAs do, whatever their numbers.
template <BwdTraits T, WorkKind kKind>
__device__ inline void take_ticket(const Context<T, kKind>& c) {
  if (threadIdx.x == 0 && c.group.leads()) {
    const uint32_t ticket = atomicAdd(c.params.workspace.ticket, 1u);
#pragma unroll
    for (int i = 0; i < T.cta_group; ++i) {
      ptx::st_cluster(ptx::mapa(c.smem_address(c.kSmem.tmem + 4), i), ticket);
    }
  }
  CtaGroup<T.cta_group>::sync();
}

template <BwdTraits T, WorkKind kKind>
__device__ inline void run(const Context<T, kKind>& c, Role role) {
  constexpr RegisterSplit kRegisters = register_split(T);
  switch (role) {
    case Role::kReduce:
      ptx::setmaxnreg_inc<kRegisters.reduce>();
      if constexpr (kKind != WorkKind::kDv) Reducer<T, kKind>(c).run();
      return;
    case Role::kCompute0:
    case Role::kCompute1:
      ptx::setmaxnreg_inc<kRegisters.compute>();
      Compute<T, kKind>(c).run();
      return;
    default:
      ptx::setmaxnreg_dec<kRegisters.other>();
      if (role == Role::kMma) MmaIssuer<T, kKind>(c).run();
      if (role == Role::kLoad) Loader<T, kKind>(c).run();
      if (role == Role::kStatistics) StatisticSplitter<T, kKind>(c).run();
      if (T.cta_group > 1 && role == Role::kRelay) relay(c);
  }
}

// What a work of a kernel whose works are split computes.
template <BwdTraits T>
__device__ inline void run_kind(const Context<T, WorkKind::kDkAndDq>& c, Role role) {
  if (c.work().kind == WorkKind::kDkAndDq) {
    run(c, role);
  } else {
    run(Context<T, WorkKind::kDv>{c.params, c.smem, c.group}, role);
  }
}

}  // namespace fa4::sm100::bwd

namespace fa4 {

template <sm100::BwdTraits T>
__global__ void __launch_bounds__(sm100::bwd::kNumThreads, 1)
    bwd_sm100(const __grid_constant__ BwdParams params) {
  using namespace sm100::bwd;
  using Group = sm100::CtaGroup<T.cta_group>;
  static_assert(why_not(T) == nullptr);
  extern __shared__ __align__(1024) unsigned char smem_base[];
  unsigned char* smem = checked_shared_base(smem_base);
  Group::announce();
  // The kind of work is not known yet: any will do, since barriers and what lies behind them have
  // the same place in all.
  constexpr WorkKind kAnyKind = T.split ? WorkKind::kDkAndDq : WorkKind::kAll;
  const Context<T, kAnyKind> context{params, smem, {Group::own_rank()}};
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kWarpThreads, 0);
  const Role role = role_of(warp);
  if (threadIdx.x == 0) initialise_barriers(context.kBarriers, context.barrier(0));
  Group::wait_for_peer();
  if (role == Role::kMma) Group::allocate(context.smem_address(context.kSmem.tmem), kTmemColumns);
  ptx::griddepcontrol_wait();
  if (params.workspace.ticket != nullptr) take_ticket(context);
  if (threadIdx.x == 0) {
    const uint32_t index =
        params.workspace.ticket == nullptr ? blockIdx.x / T.cta_group : context.ticket();
    context.work() = find_work<T>(params, context.group.rank, index);
  }
  Group::sync();

  if (context.work().steps >= 0) {
    if constexpr (T.split) {
      run_kind(context, role);
    } else {
      run(context, role);
    }
  }

  Group::sync();
  if (role == Role::kMma) Group::free(kTmemColumns);
}

}  // namespace fa4
