// Attention backward on Hopper: a load, a schedule and two reducing warps, two math warpgroups, a
// warpgroup for dQ. A work is 128 keys of one key head: a CTA visits the query blocks of its
// group's heads that see them, so that dk and dv add up in registers; dq adds up in f32 in global
// memory. Then it takes the next work.
//
// Shared memory (traits.h, smem_layout):
//   K, V     k_stages and one x 128 rows, 64 a math warpgroup; two Works, barriers
//   Q, dO    stages and dout_stages x q_rows rows, and of each row its statistics: lse and delta;
//            those of works for dv run on into V
//   dSᵀ      ds_stages x 128 keys x 64 queries: a step has one or two such blocks (q_rows)
//   dQ       dq_stages x 64 queries x dq_columns, f32, as accumulators lie
//   finish   finish_stages x 16 queries x 64 columns of dq's sums, then of dq (finish.cuh)
//
// Barriers (traits.h, barriers):
//
//   schedule warp                          all others
//     takes a work ── work_full[slot] ───▶   which keys                    ── work_empty ──▶
//     dq of earlier works: finish_full[stage], for itself
//     TMA K, V ────── k_full, v_full ────▶   (math; K: dq too)    ── k_empty, v_empty ─────▶
//   load warp ─────── work_wanted ───────▶   schedule: the next work
//                                          math warpgroups, 64 keys each
//     TMA Q, lse, delta ─ q_full[stage] ─▶   Sᵀ = K Qᵀ     (wgmma SS; K in registers: RS), P
//     TMA dO ──────── dout_full[stage] ──▶   dPᵀ = V dOᵀ   (wgmma SS), dS
//                                            dV += Pᵀ dO   (wgmma RS)   ── dout_empty ──▶
//     warpgroup of dq ◀─── ds_full[stage] ── dSᵀ to shared memory
//       dQ = dS K (wgmma SS) ── ds_empty ▶   dK += dSᵀ Q   (wgmma RS)   ── q_empty ─────▶
//       dQ to shared memory                  dk, dv to global memory at a work's end
//         │ dq_full[step][part]  ▲ dq_empty
//     reducing warps: the copy engine adds to global memory
//
// Scores lie transposed, keys along M, so that P and dS are operands from registers for dV and dK;
// only dQ, which adds up over all keys of the CTA, takes dS through shared memory. Its warpgroup is
// a step behind, and no warpgroup waits for another one's arithmetic: while one exponentiates, the
// others multiply. Between works all but the math warpgroups go on at once: K, V, Q and dO of the
// next one come while dk and dv are stored. Head dimensions whose dk and dv do not fit the
// registers together are split: works for dk and dq, and works for dv, which need neither V nor dS.
// lse and delta are taken off S and dP by products of one step (statistics.cuh); with softcap
// threads take lse off, once S is tanh.
#pragma once

#include "kernels/sm90/backward/dq.cuh"
#include "kernels/sm90/backward/load.cuh"
#include "kernels/sm90/backward/math.cuh"
#include "kernels/sm90/backward/reduce.cuh"
#include "kernels/sm90/backward/schedule.cuh"
#include "kernels/tile/shared_base.cuh"

namespace fa4 {

template <sm90::BwdTraits T>
__global__ void __launch_bounds__(sm90::bwd::kNumThreads, 1)
    bwd_sm90(const __grid_constant__ BwdParams params) {
  using namespace sm90::bwd;
  static_assert(why_not(T) == nullptr);
  extern __shared__ __align__(1024) unsigned char smem_base[];
  unsigned char* smem = checked_shared_base(smem_base);
  const Context<T> context{params, smem};
  ptx::griddepcontrol_wait();
  if (threadIdx.x == 0) initialise_barriers(context.kBarriers, context.barrier(0));
  StatisticProduct<T>(context).write_factors();
  __syncthreads();

  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroupThreads, 0);
  constexpr RegisterSplit kRegisters = register_split(T);
  if (warpgroup == kLoadAndReduce) {
    ptx::setmaxnreg_dec<kRegisters.load_and_reduce>();
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (warp == 0) {
      Loader<T>(context).run();
    } else if (warp == kScheduleWarp) {
      Scheduler<T>(context).run();
    } else if (threadIdx.x % 32 == 0) {
      Reducer<T>(context, warp - 1).run();
    }
  } else if (warpgroup == kDq) {
    ptx::setmaxnreg_dec<kRegisters.dq>();
    DqProduct<T>(context).run();
  } else {
    ptx::setmaxnreg_inc<kRegisters.math>();
    math(context, warpgroup - kMath0);
  }
}

}  // namespace fa4
