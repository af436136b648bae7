// A math warpgroup: 64 keys, from the first K Qᵀ to the last store of dk and dv.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/wgmma_backward.cuh"
#include "kernels/scores/mask_fragment.cuh"
#include "kernels/scores/softcap.cuh"
#include "kernels/sm90/backward/store.cuh"
#include "kernels/tile/smem_descriptor.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4::sm90::bwd {

template <BwdTraits T, Part kPart>
class Math {
 public:
  __device__ Math(const Context<T>& context, int warpgroup)
      : c(context), warpgroup(warpgroup), lane(threadIdx.x % kWarpgroupThreads) {}

  __device__ void run() {
    if constexpr (kHasDk) clear(rDK);
    if constexpr (kHasDv) clear(rDV);
    int steps = c.work().steps;
    go_to(c.work().rows.n_block_min);
    Scores rS;
    Statistics rStats;
    if (steps > 0) {
      wait(c.barrier(kKFull), 0);
      if constexpr (kHasDk) wait(c.barrier(kVFull), 0);
      wait_for_q(ring);
    }
    issue_scores(rS, 0);
    load_statistics(rStats, 0, 0);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rS);
#pragma unroll 1
    for (; steps > 0; --steps) {
      if constexpr (kPart == Part::kDv) {
        visit_for_dv(rS, rStats, steps > 1);
      } else {
        visit(rS, rStats, steps > 1);
      }
    }
    ptx::wgmma_wait_group<0>();
    const GradientStore<T> to{c, warpgroup, lane};
    if constexpr (kHasDv) {
      ptx::fence_registers(rDV);
      to.template store<T.head_dim_v>(rDV, c.params.gradients.dv, 1.0f);
    }
    if constexpr (kHasDk) {
      ptx::fence_registers(rDK);
      to.template store<T.head_dim>(rDK, c.params.gradients.dk, c.params.scale);
    }
  }

 private:
  static constexpr bool kHasDk = kPart != Part::kDv, kHasDv = kPart != Part::kDkAndDq;
  using WgmmaScores = ptx::WgmmaStep<kQueryRows, T.element>;
  using QkDescriptor = WgmmaDescriptor<slab_columns(T.head_dim)>;
  using VDescriptor = WgmmaDescriptor<slab_columns(T.head_dim_v)>;
  static constexpr int kMmaK = 16;
  static constexpr int kScores = kQueryRows / 2;
  // 64 keys x 64 queries in 16 bits, as A in registers.
  using Operand = uint32_t[kQueryRows / kMmaK][4];
  using Scores = float[kScores];
  using Statistics = float4[kQueryRows / kMmaK];

  // Softcap: P (1 - tanh²), which takes P's place in dS. Else nothing.
  struct None {};
  template <bool kCondition, class A, class B>
  struct Choice {
    using type = A;
  };
  template <class A, class B>
  struct Choice<false, A, B> {
    using type = B;
  };
  using Factors = typename Choice<T.softcap && kHasDk, Operand, None>::type;

  static constexpr bool kEarlyDp = early_dp(T);
  // Whether registers hold delta beside P, its slope and dP.
  static constexpr bool kEarlyDelta = !T.softcap || kEarlyDp;

  // From the scores of block m to those of the next one. After the last step S is computed once
  // more, and nobody reads it: a condition between two products would make ptxas serialise them.
  // Statistics and what the next block is are read from shared memory while products run; P and dS
  // too are read then, of which the product under way has copies (ptxas gives them one register).
  __device__ void visit(Scores& rS, Statistics& rStats, bool has_next) {
    const int stage = ring.stage();
    Scores rDP;
    Operand rP, rDS, rPOfDv, rDSOfDk;
    Factors rFactor;
    if constexpr (kEarlyDp) issue_dp(rDP, stage);
    probabilities(rS, rStats, rP, rFactor);
    if (is_masked) mask(rP, rFactor);
    if constexpr (!kEarlyDp) issue_dp(rDP, stage);
    if constexpr (kHasDv) {
      ptx::copy_registers(rPOfDv, rP);
      issue_dv(rPOfDv, stage);
    }
    if constexpr (kEarlyDelta) load_statistics(rStats, stage, 1);
    ptx::wgmma_wait_group<kEarlyDp ? 1 : 0>();
    if constexpr (kEarlyDp) release_last(kQFull);
    ptx::fence_registers(rDP);
    if constexpr (!kEarlyDelta) load_statistics(rStats, stage, 1);
    if constexpr (T.softcap) {
      score_gradients(rFactor, rDP, rStats, rDS);
    } else {
      score_gradients(rP, rDP, rStats, rDS);
    }
    const RingState<T> next{ring.count + has_next};
    ptx::copy_registers(rDSOfDk, rDS);
    if constexpr (kEarlyDp) {
      wait_for_q(next);
      issue_scores(rS, next.stage());
      issue_dk(rDSOfDk, stage);
      store_ds(rDS);
    } else if constexpr (kHasDv) {
      issue_dk(rDSOfDk, stage);
      store_ds(rDS);
      wait_for_q(next);
      issue_scores(rS, next.stage());
    } else {
      store_ds(rDS);
      release(kDoutFull, ring);
      if constexpr (T.stages == 1) {
        issue_dk(rDSOfDk, stage);
        ptx::wgmma_wait_group<0>();
        release(kQFull, ring);
        wait_for_q(next);
        issue_scores(rS, next.stage());
      } else {
        wait_for_q(next);
        issue_scores(rS, next.stage());
        issue_dk(rDSOfDk, stage);
      }
    }
    load_statistics(rStats, next.stage(), 0);
    go_to_next();
    ptx::wgmma_wait_group<kEarlyDp ? 1 : 0>();
    if constexpr (kHasDv) release(kDoutFull, ring);
    if constexpr (!kEarlyDp && T.stages > 1) release(kQFull, ring);
    ptx::fence_registers(rS);
    ring = next;
  }

  // The same where dv is all that is computed: Q is free when its scores are there.
  __device__ void visit_for_dv(Scores& rS, Statistics& rStats, bool has_next) {
    Operand rP;
    Factors none;
    const RingState<T> next{ring.count + has_next};
    __syncwarp();  // every lane has read its lse, which came with Q
    release(kQFull, ring);
    probabilities(rS, rStats, rP, none);
    if (is_masked) mask(rP, none);
    if (has_next) wait_for_q(next);
    issue_scores(rS, next.stage());
    c.pipeline(kDoutFull).consumer_wait(ring);
    issue_dv(rP, ring.stage());
    load_statistics(rStats, next.stage(), 0);
    go_to_next();
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rS);
    release(kDoutFull, ring);
    ring = next;
  }

  // Which block comes next, and whether some of the CTA's keys do not see all of it.
  __device__ void go_to(int block) {
    const BlockRange& rows = c.work().rows;
    m = block == rows.n_block_max ? rows.n_block_min : block;
    is_masked = m >= rows.full_end || m < rows.full_begin;
  }
  __device__ void go_to_next() { go_to(m + 1); }

  template <int kCount>
  __device__ static void clear(float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = 0.0f;
    ptx::fence_registers(x);  // before any product is under way
  }

  __device__ int row(int r) const {
    return kWarpgroupKeys * warpgroup + 16 * (lane / 32) + lane % 32 / 4 + 8 * r;
  }

  __device__ void wait_for_q(const RingState<T>& of) const { c.pipeline(kQFull).consumer_wait(of); }
  __device__ void release(int full_kind, const RingState<T>& of) const {
    if (lane % 32 == 0) c.pipeline(full_kind).consumer_release(of);
  }
  // The stage of the step before this one.
  __device__ void release_last(int full_kind) const {
    if (ring.count > 0) release(full_kind, RingState<T>{ring.count - 1});
  }

  // Sᵀ = K Qᵀ and dPᵀ = V dOᵀ: 64 keys x 64 queries. Of a slab, A has kKeys rows and B kQueryRows.
  template <class Descriptor, int kHeadDim>
  __device__ void issue_product(float (&d)[kScores], int a, int b) const {
    constexpr int kRowBytes = slab_columns(kHeadDim) * kElementBytes;
    constexpr int kSteps = slab_columns(kHeadDim) / kMmaK;
    const uint32_t a_lo =
        Descriptor::k_major(c.smem_address(a + warpgroup * kWarpgroupKeys * kRowBytes));
    const uint32_t b_lo = Descriptor::k_major(c.smem_address(b));
    ptx::wgmma_fence();
    WgmmaScores::template start<kSteps>(d, Descriptor::descriptor_at(a_lo),
                                        Descriptor::descriptor_at(b_lo));
#pragma unroll
    for (int slab = 1; slab < num_slabs(kHeadDim); ++slab) {
      WgmmaScores::template run<kSteps>(
          d, Descriptor::descriptor_at(a_lo, slab * kKeys * kRowBytes),
          Descriptor::descriptor_at(b_lo, slab * kQueryRows * kRowBytes));
    }
    ptx::wgmma_commit_group();
  }
  __device__ void issue_scores(float (&rS)[kScores], int stage) const {
    issue_product<QkDescriptor, T.head_dim>(rS, c.kSmem.k, c.kSmem.q + stage * q_bytes(T));
  }
  __device__ void issue_dp(float (&rDP)[kScores], int stage) const {
    c.pipeline(kDoutFull).consumer_wait(ring);
    issue_product<VDescriptor, T.head_dim_v>(rDP, c.kSmem.v, c.kSmem.dout + stage * dout_bytes(T));
  }

  // dV += Pᵀ dO and dK += dSᵀ Q: A in registers, B's contracted dimension runs over its rows. At
  // most 192 columns an instruction: ptxas does not place more in a kernel of 512 threads.
  template <int kColumns>
  __device__ void issue_sum(float (&d)[kColumns / 2], const Operand& a, int b) const {
    using Descriptor = WgmmaDescriptor<slab_columns(kColumns)>;
    constexpr int kAtOnce = kColumns > 192 ? kColumns / 2 : kColumns;
    using Wgmma = ptx::WgmmaRs<kAtOnce, T.element>;
    constexpr int kStepBytes = kMmaK * Descriptor::kRowBytes;
    constexpr int kSlabBytes = kQueryRows * Descriptor::kRowBytes;
    const uint32_t b_lo = Descriptor::mn_major(c.smem_address(b), kSlabBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int first = 0; first < kColumns; first += kAtOnce) {
      auto& part = *reinterpret_cast<float(*)[kAtOnce / 2]>(d + first / 2);
      const int slabs = first / slab_columns(kColumns) * kSlabBytes;
#pragma unroll
      for (int i = 0; i < kQueryRows / kMmaK; i += 2) {
        Wgmma::template run<2, kStepBytes>(part, a + i,
                                           Descriptor::descriptor_at(b_lo, slabs + i * kStepBytes));
      }
    }
    ptx::wgmma_commit_group();
  }
  __device__ void issue_dv(const Operand& rP, int stage) {
    issue_sum<T.head_dim_v>(rDV, rP, c.kSmem.dout + stage * dout_bytes(T));
  }
  __device__ void issue_dk(const Operand& rDS, int stage) {
    issue_sum<T.head_dim>(rDK, rDS, c.kSmem.q + stage * q_bytes(T));
  }

  // -lse log2(e) or delta of this thread's columns: of each 16 those of fragment_place.
  __device__ void load_statistics(Statistics& x, int stage, int kind) const {
    const auto* from =
        reinterpret_cast<const float4*>(c.smem + c.kSmem.stats + (2 * stage + kind) * kStatBytes) +
        lane % 4;
#pragma unroll
    for (int i = 0; i < kQueryRows / kMmaK; ++i) x[i] = from[4 * i];
  }
  // Of the pair j of an operand's step.
  __device__ static float2 statistic(const float4& x, int j) {
    return j < 2 ? float2{x.x, x.y} : float2{x.z, x.w};
  }

  // P = 2^(S scale log2(e) - lse log2(e)), rounded; with softcap, tanh(S scale / softcap) softcap
  // in the place of S scale. The accumulator layout of two 8-column groups is the A operand of one
  // step of 16 columns.
  __device__ void probabilities(const Scores& rS, const Statistics& rStats, Operand& rP,
                                Factors& rFactor) const {
    const ScoreParams& scores = c.params.scores;
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      const float2 offset = statistic(rStats[i / 4], i % 4);
      float s0 = rS[2 * i], s1 = rS[2 * i + 1];
      if constexpr (T.softcap) {
        s0 = accurate_tanh(s0 * scores.scale_over_softcap);
        s1 = accurate_tanh(s1 * scores.scale_over_softcap);
      }
      const float p0 = ptx::ex2_approx_ftz(fmaf(s0, scores.scale_log2, offset.x));
      const float p1 = ptx::ex2_approx_ftz(fmaf(s1, scores.scale_log2, offset.y));
      rP[i / 4][i % 4] = pack<T.element>(p0, p1);
      if constexpr (T.softcap && kHasDk) {
        rFactor[i / 4][i % 4] = pack<T.element>(p0 * fmaf(-s0, s0, 1.0f), p1 * fmaf(-s1, s1, 1.0f));
      }
    }
  }

  // After the exponential, since the scale may have any sign; and after the rounding, which ptxas
  // would put off otherwise, and with it the end of the scores' registers.
  __device__ void mask(Operand& rP, Factors& rFactor) const {
    QueryBounds bounds[2];  // of this thread's two keys, from its first column on
    const int first_column = 2 * (lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const QueryBounds b =
          bounds_of_key(c.params.mask, c.work().sequence, c.work().first_key() + row(r));
      bounds[r] = {b.begin - first_column, b.end - first_column};
    }
    hide_probabilities(rP, bounds, m * kQueryRows);
    if constexpr (T.softcap && kHasDk) hide_probabilities(rFactor, bounds, m * kQueryRows);
  }

  // dS = P (dP - delta), rounded.
  __device__ void score_gradients(const Operand& rP, const Scores& rDP, const Statistics& rStats,
                                  Operand& rDS) const {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      const float2 delta = statistic(rStats[i / 4], i % 4);
      const uint32_t p = rP[i / 4][i % 4];
      rDS[i / 4][i % 4] = pack<T.element>(unpack_lower<T.element>(p) * (rDP[2 * i] - delta.x),
                                          unpack_upper<T.element>(p) * (rDP[2 * i + 1] - delta.y));
    }
  }

  // Rows of dSᵀ for dQ = dS K.
  __device__ void store_ds(const Operand& rDS) const {
    const DsState<T> ds{ring.count};
    constexpr int kRowBytes = kQueryRows * kElementBytes;
    const int matrix = lane % 32 / 8;
    const int key = kWarpgroupKeys * warpgroup + 16 * (lane / 32) + lane % 8 + 8 * (matrix & 1);
    const ptx::SmemAddr to = c.smem_address(c.kSmem.ds + ds.stage() * kDsBytes + key * kRowBytes);
    c.pipeline(kDsFull).producer_acquire(ds);
#pragma unroll
    for (int i = 0; i < kQueryRows / kMmaK; ++i) {
      const int chunk = 2 * i + matrix / 2;
      ptx::stmatrix_x4(to + 16 * (chunk ^ slab_swizzle<kQueryRows>(key)), rDS[i][0], rDS[i][1],
                       rDS[i][2], rDS[i][3]);
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane % 32 == 0) ptx::mbarrier_arrive(c.barrier(kDsFull, ds.stage()));
  }

  const Context<T>& c;
  const int warpgroup;
  const int lane;  // in the warpgroup

  RingState<T> ring;
  int m;           // block of queries
  bool is_masked;  // some of the CTA's keys do not see all of it

  float rDK[kHasDk ? T.head_dim / 2 : 1], rDV[kHasDv ? T.head_dim_v / 2 : 1];
};

}  // namespace fa4::sm90::bwd
