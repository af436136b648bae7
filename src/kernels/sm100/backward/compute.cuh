// A compute warpgroup: a key a thread, half of each block's queries. Scores come from tensor memory
// and go back to it as P, dP as dS; in the end sums of dV, or of dK, go to global memory.
#pragma once

#include "kernels/ptx/packed.cuh"
#include "kernels/ptx/select.cuh"
#include "kernels/ptx/store_async.cuh"
#include "kernels/scores/softcap.cuh"
#include "kernels/sm100/backward/context.cuh"
#include "kernels/sm100/backward/store.cuh"
#include "kernels/tile/pack.cuh"

namespace fa4::sm100::bwd {

template <BwdTraits T, WorkKind kKind>
class Compute {
 public:
  __device__ explicit Compute(const Context<T, kKind>& context)
      : c(context),
        p(context.params),
        lanes(first_lane()),
        warpgroup(__shfl_sync(0xffffffffu, threadIdx.x / kWarpgroupThreads - 1, 0)),
        row(threadIdx.x % kWarpgroupThreads) {}

  __device__ void run() {
    const Work& w = c.work();
    seen = bounds_of_key(p.mask, w.sequence, w.first_key + row);
    if (w.first_key + row >= w.sequence.seqlen_k) seen.end = seen.begin;
#pragma unroll 1
    for (Steps steps(w, p.group); !steps.is_done(); steps.advance(w)) {
      step(steps.m_block() * block_rows(T) + warpgroup * kColumns, steps.is_masked(w));
    }
    SumStore<T, kKind>(c, tmem(0), warpgroup, row).run(w);
  }

 private:
  static constexpr int kColumns = own_rows(T), kChunks = kColumns / kChunk;
  static constexpr bool kMakesP = kKind != WorkKind::kDkAndDq, kMakesDs = kKind != WorkKind::kDv;
  static constexpr bool kSplitsS = splits_s(T), kLateDq = dq_over_s(T);
  // Softcap takes more registers: chunks of S are loaded when they are needed, where nobody waits
  // until S has been read and P of an earlier chunk is not written over a later one.
  static constexpr bool kLoadsLate = T.softcap && !T.apart && !kSplitsS;
  using Block = float[kChunks][kChunk];

  __device__ ptx::TmemAddr tmem(int column) const {
    return {lanes | static_cast<uint32_t>(column)};
  }

  // One block of queries, of which this warpgroup's begin at `first_row`.
  __device__ void step(int first_row, bool is_masked) {
    Block rP;
    probabilities(rP, first_row, is_masked);
    if constexpr (kMakesDs) score_gradients(rP, first_row, is_masked);
  }

  // P = 2^(S scale log2(e)), where the tensor core has taken lse off S. The mask comes after the
  // exponential: the scale may have any sign. With softcap lse comes from shared memory, and rP
  // becomes P (1 - tanh²) when P has been handed over.
  __device__ void probabilities(Block& rP, int first_row, bool is_masked) {
    const ptx::Float2* neg_lse_log2 = statistic();
    if constexpr (!takes_lse_off(T)) c.wait(kStatsFull, stats.stage(), stats.phase());
    phases.wait(c, kSFull);
    ptx::tcgen05_fence_after_thread_sync();
    const ptx::TmemAddr s = tmem(c.kTmem.s + warpgroup * kColumns);
    const ptx::TmemAddr to = tmem(c.kTmem.p + warpgroup * c.kTmem.p_stride);
#pragma unroll
    for (int i = 0; i < (kLoadsLate ? 1 : kChunks); ++i) {
      ptx::tcgen05_ld_and_wait_32x32b(rP[i], s + i * kChunk);
    }
    hand_over_scores();
    // The scale is read from shared memory, behind the arrival: ptxas keeps accesses in order, so
    // that it moves no exponential before the arrival, which would then be late.
    const ptx::Float2 scale = ptx::pack_float2(c.work().scale_log2);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (kLoadsLate && i > 0) ptx::tcgen05_ld_and_wait_32x32b(rP[i], s + i * kChunk);
      uint32_t packed[kChunk / 2];
      exponentiate(rP[i], packed, scale, neg_lse_log2 + i * kChunk / 2, !is_masked);
      if (is_masked) mask(rP[i], packed, first_row + i * kChunk);
      if constexpr (!kMakesP) continue;
      if (i == 0) wait_for_p();
      ptx::tcgen05_st_32x32b<0>(to + i * kChunk / 2, packed);
    }
    if constexpr (kMakesP) {
      ptx::tcgen05_wait_st();
      ptx::tcgen05_fence_before_thread_sync();
      c.arrive_at_mma(kPFull);
    }
    if constexpr (!takes_lse_off(T)) {
      c.arrive(kStatsEmpty, stats.stage());
      stats.advance();
    }
  }

  // A chunk of scores becomes P in 16 bits, and in f32 what dP - delta is multiplied with. The
  // slope of a score, 1 - tanh², is never kept: there are no registers for 32 of them.
  // Under a mask, where scores of others may stand, nobody looks whether they are near 0.
  __device__ void exponentiate(float (&r)[kChunk], uint32_t (&packed)[kChunk / 2],
                               ptx::Float2 scale, const ptx::Float2* neg_lse_log2,
                               bool may_be_near) const {
    if constexpr (T.softcap) tanh_scores(r, p.scale_over_softcap, p.near, may_be_near);
#pragma unroll
    for (int j = 0; j < kChunk; j += 2) {
      const float t0 = r[j], t1 = r[j + 1];
      if constexpr (takes_lse_off(T)) {
        ptx::mul_rn_ftz(r[j], r[j + 1], scale);
      } else {
        ptx::fma_rn_ftz(r[j], r[j + 1], scale, neg_lse_log2[j / 2]);
      }
      r[j] = ptx::ex2_approx_ftz(r[j]);
      r[j + 1] = ptx::ex2_approx_ftz(r[j + 1]);
      packed[j / 2] = pack<T.element>(r[j], r[j + 1]);
      if constexpr (T.softcap) {
        r[j] *= fmaf(-t0, t0, 1.0f);
        r[j + 1] *= fmaf(-t1, t1, 1.0f);
      }
    }
  }

  // The scores are in registers, so that what comes in their place may: the next ones, where P is
  // apart; dQ or dP; P of the other warpgroup.
  __device__ void hand_over_scores() const {
    if constexpr (T.apart || kSplitsS) ptx::tcgen05_fence_before_thread_sync();
    if (T.apart || (kSplitsS && warpgroup == 1)) c.arrive_at_mma(kSFree);
    if (kSplitsS && warpgroup == 0) ptx::barrier_arrive(scores_barrier(), 2 * kWarpThreads);
  }
  // Waits until this warp's P may be written.
  __device__ void wait_for_p() {
    if constexpr (T.apart) phases.wait(c, kPFree);
    if (kSplitsS && warpgroup == 1) ptx::barrier_sync(scores_barrier(), 2 * kWarpThreads);
    if constexpr (T.apart || kSplitsS) ptx::tcgen05_fence_after_thread_sync();
  }
  // Named barriers: 0 is __syncthreads. From a warp of the first warpgroup to the second one's with
  // the same lanes.
  __device__ int scores_barrier() const { return 1 + (lanes >> 21); }

  // dS = P dP, off which delta was taken, to tensor memory and to shared memory. dP of a key that
  // is not there may be NaN. Subnormal products count: dP may be as small as values are.
  __device__ void score_gradients(const Block& rP, int first_row, bool is_masked) {
    const ptx::TmemAddr from = tmem(c.kTmem.dp + warpgroup * kColumns);
    const ptx::TmemAddr to = tmem(c.kTmem.ds + warpgroup * kColumns);
    phases.wait(c, kDpFull);
    ptx::tcgen05_fence_after_thread_sync();
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      float r[kChunk];
      ptx::tcgen05_ld_and_wait_32x32b(r, from + i * kChunk);
#pragma unroll
      for (int j = 0; j < kChunk; j += 2) {
        ptx::mul_rn(r[j], r[j + 1], rP[i][j], rP[i][j + 1]);
      }
      if (is_masked) mask(r, first_row + i * kChunk);
      uint32_t packed[kChunk / 2];
      round(r, packed);
      ptx::tcgen05_st_32x32b<0>(to + i * kChunk / 2, packed);
      if (i == 0 && kLateDq) phases.wait(c, kDsFree);
      share(i, packed);
    }
    ptx::fence_proxy_async_shared();
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();
    c.release_to_mma(kDsFull);
  }

  // -lse log2(e) of this warpgroup's queries.
  __device__ const ptx::Float2* statistic() const {
    const int place = c.kSmem.stats + 2 * stats.stage() * stat_bytes(T);
    return reinterpret_cast<const ptx::Float2*>(c.smem + place) + warpgroup * (kColumns / 2);
  }

  // Zeros where the query does not see this thread's key.
  __device__ void mask(float (&r)[kChunk], int first_row) const {
    ptx::zero_others(r, seen_of(first_row));
  }
  __device__ void mask(float (&r)[kChunk], uint32_t (&packed)[kChunk / 2], int first_row) const {
    if constexpr (!T.softcap) {
      mask(r, first_row);
      round(r, packed);
    } else {
      const uint32_t bits = seen_of(first_row);
      ptx::zero_others(r, bits);
#pragma unroll
      for (int j = 0; j < kChunk / 2; ++j) {
        packed[j] &= (bits >> 2 * j & 1 ? 0xffffu : 0) | (bits >> 2 * j & 2 ? 0xffff0000u : 0);
      }
    }
  }
  // A bit for each of the 32 queries from `first_row` on that sees this thread's key.
  __device__ uint32_t seen_of(int first_row) const {
    const int begin = seen.begin - first_row, end = seen.end - first_row;
    return ptx::bmsk_clamp(0, end > 0 ? end : 0) & ~ptx::bmsk_clamp(0, begin > 0 ? begin : 0);
  }

  __device__ static void round(const float (&r)[kChunk], uint32_t (&packed)[kChunk / 2]) {
#pragma unroll
    for (int j = 0; j < kChunk / 2; ++j) packed[j] = pack<T.element>(r[2 * j], r[2 * j + 1]);
  }

  // A chunk of this key's row of dSᵀ, as TMA would lay it into shared memory: that of the CTA of
  // the pair that computes dQ of these queries.
  __device__ void share(int chunk, const uint32_t (&r)[kChunk / 2]) const {
    constexpr int kSlab = qk_slab(T), kRowBytes = kSlab * kElementBytes;
    const int column = (T.cta_group > 1 ? 0 : warpgroup * kColumns) + chunk * kChunk;
    const int key = static_cast<int>(c.group.rank) * kKeys + row;
    const int to = c.kSmem.ds + column / kSlab * ds_slab_bytes(T) + key * kRowBytes;
    const int place = (column % kSlab / 8 ^ slab_swizzle<kSlab>(row)) * 16;  // of the first piece
    if (T.cta_group == 1 || warpgroup == static_cast<int>(c.group.rank)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<uint4*>(c.smem + to + (place ^ i * 16)) =
            uint4{r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]};
      }
    } else {
      const ptx::ClusterAddr there = ptx::mapa(c.smem_address(to), warpgroup);
      const ptx::ClusterAddr barrier = ptx::mapa(c.barrier(kDsPeer), warpgroup);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ptx::st_async_v4({there.value + (place ^ i * 16)}, r[4 * i], r[4 * i + 1], r[4 * i + 2],
                         r[4 * i + 3], barrier);
      }
    }
  }

  const Context<T, kKind>& c;
  const BwdParams& p;
  const uint32_t lanes;  // of this warp, in tensor memory
  const int warpgroup;   // which one of the two
  const int row;         // of the keys: a lane of tensor memory
  QueryBounds seen;      // queries that see this thread's key
  PipelineState<kStatStages> stats;
  PhasesOf<T, kSFull, kPFree, kDpFull, kDsFree> phases;
};

}  // namespace fa4::sm100::bwd
