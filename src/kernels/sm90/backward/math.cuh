// A math warpgroup: 64 keys of each work, from the first K Qᵀ to the last store of dk and dv.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/scores/mask_fragment.cuh"
#include "kernels/scores/softcap.cuh"
#include "kernels/sm90/backward/products.cuh"
#include "kernels/sm90/backward/store.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4::sm90::bwd {

// What goes on from work to work.
template <BwdTraits T>
struct Rings {
  RingState<T> of_queries;
  DsState<T> ds;  // of T.split, where works without dS come between; else it goes with the queries
};

// One work with queries.
template <BwdTraits T, Part kPart>
class Math {
 public:
  __device__ Math(const Context<T>& context, const Work& work, int warpgroup, Rings<T> rings,
                  KState<T> k)
      : c(context),
        work(work),
        rows(work.rows),
        warpgroup(warpgroup),
        products{context, warpgroup, context.kSmem.k + k.stage() * k_bytes(T)},
        lane(threadIdx.x % kWarpgroupThreads),
        ring(rings.of_queries),
        ds(rings.ds),
        k(k) {}

  // Returns the rings of the next work.
  __device__ Rings<T> run() {
    if constexpr (kHasDk) clear(rDK);
    if constexpr (kHasDv) clear(rDV);
    int steps = work.steps;
    go_to(rows.n_block_min);
    Scores rS;
    if constexpr (kInHalves) clear(rS);  // dP and S are added to it, as far as ptxas knows
    Statistics rStats;
    c.pipeline(kKFull).consumer_wait(k);
    wait_for_q(ring);
    products.load_keys(rK);
    products.issue_scores(rS, rK, ring.stage());
    load_statistics(rStats, ring.stage(), kNegLseLog2);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rS);
    if constexpr (kPart == Part::kDkAndDq) c.pipeline(kVFull).consumer_wait(VState{work.v});
#pragma unroll 1
    for (; steps > 0; --steps) {
      if constexpr (kPart == Part::kDv) {
        visit_for_dv(rS, rStats, steps > 1);
      } else if constexpr (kPart == Part::kDkAndDq) {
        visit_for_dk_and_dq(rS, rStats, steps > 1);
      } else if constexpr (kInHalves) {
        visit_in_halves(rS, rStats, steps > 1);
      } else {
        visit(rS, rStats, steps > 1);
      }
    }
    ptx::wgmma_wait_group<0>();
    // The gradients leave through V's place, or K's where there is no V: the next one comes where
    // they were.
    if (kUsesV && lane % 32 == 0) c.pipeline(kKFull).consumer_release(k);
    const GradientStore<T> to{c, work, warpgroup, lane, kUsesV ? c.kSmem.v : products.k};
    if constexpr (kHasDv) {
      ptx::fence_registers(rDV);
      to.template store<T.head_dim_v>(rDV, c.params.gradients.dv, 1.0f);
    }
    if constexpr (kHasDk) {
      ptx::fence_registers(rDK);
      to.template store<T.head_dim>(rDK, c.params.gradients.dk, c.params.scale);
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane % 32 == 0) {
      if constexpr (kUsesV) {
        c.pipeline(kVFull).consumer_release(VState{work.v});
      } else {
        c.pipeline(kKFull).consumer_release(k);
      }
    }
    ring.advance();
    return {ring, ds};
  }

 private:
  static constexpr bool kHasDk = kPart != Part::kDv, kHasDv = kPart != Part::kDkAndDq;
  static constexpr bool kUsesV = uses_v(kPart);
  static constexpr bool kCountsDs = T.split;
  using Shape = StepShape<T>;
  using Operand = typename Shape::Operand;
  using Scores = typename Shape::Scores;
  static constexpr int kMmaK = Shape::kMmaK, kSteps = Shape::kSteps;
  static constexpr bool kInHalves = Shape::kInHalves;

  // Of the first steps; the others' are loaded in their places. dk of 256 columns, P in f32 and dP
  // leave no room for more than one.
  static constexpr bool kIsCrowded = kPart == Part::kDkAndDq && T.head_dim >= 192;
  static constexpr int kHeldSteps = kIsCrowded ? 1 : kSteps < 4 ? kSteps : 4;
  using Statistics = float4[kHeldSteps];
  // Softcap: P (1 - tanh²), of which dS is made in the place of P. Rounded, and rounded again as
  // dS, it would leave f16's bounds where few columns share them; wider rows have no registers for
  // more than pairs, and more columns to average over. Without softcap there is nothing.
  struct None {};
  template <bool kCondition, class A, class B>
  struct Choice {
    using type = A;
  };
  template <class A, class B>
  struct Choice<false, A, B> {
    using type = B;
  };
  using Factors = typename Choice<!T.softcap || kPart != Part::kAll, None,
                                  typename Choice<T.head_dim <= 64, Scores, Operand>::type>::type;

  // From the scores of a step to those of the next one. After the last step S is computed once
  // more, and nobody reads it: a condition between two products would make ptxas serialise them.
  // Statistics and what the next block is are read from shared memory while products run; P and dS
  // too are read then, of which the product under way has copies (ptxas gives them one register).
  __device__ void visit(Scores& rS, Statistics& rStats, bool has_next) {
    const int stage = ring.stage();
    Scores rDP;
    Operand rY;  // P, then dS
    Factors rFactors;
    probabilities<kBoth>(rS, rStats, rY, rFactors);
    if (is_masked) hide<kBoth>(rY);
    wait_for_dout();
    wait_for_v();
    products.issue_dp(rDP, stage);
    products.template issue_dv<kBoth>(rDV, rY, stage);
    if constexpr (!T.softcap) load_statistics(rStats, stage, kDelta);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rDP);
    if constexpr (T.softcap) {
      // Registers hold no delta beside P, its product with the slope and dP.
      load_statistics(rStats, stage, kDelta);
      score_gradients<kBoth>(rY, rDP, rStats, pairs_of(rFactors));
      if (is_masked) hide<kBoth>(rY);
    } else {
      score_gradients<kBoth>(rY, rDP, rStats, pairs_of(rY));
    }
    const RingState<T> next{ring.count + has_next};
    products.template issue_dk<kBoth>(rDK, rY, stage);
    store_ds<kBoth>(rY);
    announce_ds();
    wait_for_q(next);
    products.issue_scores(rS, rK, next.stage());
    load_statistics(rStats, next.stage(), kNegLseLog2);
    go_to_next();
    ptx::wgmma_wait_group<0>();
    release(kDoutFull, ring);
    release(kQFull, ring);
    ptx::fence_registers(rS);
    ring = next;
  }

  // The same in two halves, so that products are under way while the thread computes:
  //
  //   thread              products under way
  //   P, first half       dK of the step before, second half
  //   P, second half      dV, first half
  //                       dP
  //   dS, first half      dV, second half
  //   dS, second half     dK, first half
  //   dS to the others    the next S, then dK, second half
  //
  // dP takes the registers of S. dS is stored at once, while the queue of shared memory is short,
  // and announced when its second half is there: the fence then finds it written.
  __device__ void visit_in_halves(Scores& rX, Statistics& rStats, bool has_next) {
    const int stage = ring.stage();
    const RingState<T> next{ring.count + has_next};
    Operand rY;  // P, then dS
    None none;
    probabilities<kFirst>(rX, rStats, rY, none);
    if (is_masked) hide<kFirst>(rY);
    wait_for_dout();
    products.template issue_dv<kFirst>(rDV, rY, stage);
    ptx::wgmma_wait_group<1>();
    release_last(kQFull);
    probabilities<kSecond>(rX, rStats, rY, none);
    if (is_masked) hide<kSecond>(rY);
    wait_for_v();
    products.issue_dp(rX, stage);
    products.template issue_dv<kSecond>(rDV, rY, stage);
    load_statistics(rStats, stage, kDelta);
    ptx::wgmma_wait_group<1>();
    ptx::fence_registers(rX);
    score_gradients<kFirst>(rY, rX, rStats, pairs_of(rY));
    products.template issue_dk<kFirst>(rDK, rY, stage);
    store_ds<kFirst>(rY);
    ptx::wgmma_wait_group<1>();
    score_gradients<kSecond>(rY, rX, rStats, pairs_of(rY));
    release(kDoutFull, ring);
    wait_for_q(next);
    products.issue_scores(rX, rK, next.stage());
    store_ds<kSecond>(rY);
    load_statistics(rStats, next.stage(), kNegLseLog2);
    go_to_next();
    products.template issue_dk<kSecond>(rDK, rY, stage);
    announce_ds();
    ptx::wgmma_wait_group<1>();
    ptx::fence_registers(rX);
    ring = next;
  }

  // The same where dk and dq are computed, not dv: P stays in f32 in the registers of S, since no
  // product reads it. That the mask may change P keeps ptxas from computing it behind dP, for whose
  // registers and those of S at once there is no room.
  __device__ void visit_for_dk_and_dq(Scores& rS, Statistics& rStats, bool has_next) {
    const int stage = ring.stage();
    const RingState<T> next{ring.count + has_next};
    Scores rDP;
    Operand rDS;
    factors_in_place(rS, rStats);
    if (is_masked) hide(rS);
    wait_for_dout();
    products.issue_dp(rDP, stage);
    if constexpr (!kIsCrowded) load_statistics(rStats, stage, kDelta);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rDP);
    if constexpr (kIsCrowded) load_statistics(rStats, stage, kDelta);
    score_gradients<kBoth>(rDS, rDP, rStats, pairs_of(rS));
    store_ds<kBoth>(rDS);
    announce_ds();
    if constexpr (kCountsDs) ds.advance();
    release(kDoutFull, ring);
    if constexpr (T.stages == 1) {
      products.template issue_dk<kBoth>(rDK, rDS, stage);
      ptx::wgmma_wait_group<0>();
      if (has_next) release(kQFull, ring);
      wait_for_q(next);
      products.issue_scores(rS, rK, next.stage());
    } else {
      wait_for_q(next);
      products.issue_scores(rS, rK, next.stage());
      products.template issue_dk<kBoth>(rDK, rDS, stage);
    }
    load_statistics(rStats, next.stage(), kNegLseLog2);
    go_to_next();
    ptx::wgmma_wait_group<0>();
    if (T.stages > 1 || !has_next) release(kQFull, ring);
    ptx::fence_registers(rS);
    ring = next;
  }

  // The same where dv is all that is computed: Q is free when its scores are there. A work's last
  // one is held for the scores that nobody reads, where the next work's would take its place.
  __device__ void visit_for_dv(Scores& rS, Statistics& rStats, bool has_next) {
    Operand rP;
    None none;
    const RingState<T> next{ring.count + has_next};
    __syncwarp();  // every lane has read its lse, which came with Q
    if (has_next) release(kQFull, ring);
    probabilities<kBoth>(rS, rStats, rP, none);
    if (is_masked) hide<kBoth>(rP);
    wait_for_q(next);
    products.issue_scores(rS, rK, next.stage());
    wait_for_dout();
    products.template issue_dv<kBoth>(rDV, rP, ring.stage());
    load_statistics(rStats, next.stage(), kNegLseLog2);
    go_to_next();
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rS);
    release(kDoutFull, ring);
    if (!has_next) release(kQFull, ring);
    ring = next;
  }

  // Which block comes next, and whether some of the CTA's keys do not see all of it.
  __device__ void go_to(int block) {
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
  // Before the work's first dP: V comes when the dk and dv before have left its place, while the
  // first scores and probabilities are computed.
  __device__ void wait_for_v() {
    if (has_v) return;
    c.pipeline(kVFull).consumer_wait(VState{work.v});
    has_v = true;
  }
  __device__ void wait_for_dout() const { c.pipeline(kDoutFull).consumer_wait(ring); }
  __device__ void release(int full_kind, const RingState<T>& of) const {
    if (lane % 32 == 0) c.pipeline(full_kind).consumer_release(of);
  }
  // The stage of the step before this one.
  __device__ void release_last(int full_kind) const {
    if (ring.count > 0) release(full_kind, RingState<T>{ring.count - 1});
  }

  // -lse log2(e) or delta of this thread's columns: of each 16 those of fragment_place.
  enum StatisticArray { kNegLseLog2, kDelta };
  __device__ const float4* statistics(int stage, StatisticArray kind) const {
    return reinterpret_cast<const float4*>(c.smem + c.kSmem.stats + stage * stats_bytes(T) +
                                           kind * stat_bytes(T)) +
           lane % 4;
  }
  __device__ void load_statistics(Statistics& x, int stage, StatisticArray kind) const {
    if constexpr (!multiplies_statistics(T)) {
#pragma unroll
      for (int i = 0; i < kHeldSteps; ++i) x[i] = statistics(stage, kind)[4 * i];
    }
  }
  // Calls visit(i, statistic of step i) for every step of 16 columns.
  template <Half kHalf, class Visit>
  __device__ void for_each_step(Statistics& x, StatisticArray kind, Visit visit) const {
#pragma unroll
    for (int i = Shape::begin(kHalf); i < Shape::end(kHalf); ++i) {
      if constexpr (multiplies_statistics(T)) {
        visit(i, float4{});
      } else {
        visit(i, x[i % kHeldSteps]);
        if (i + kHeldSteps < kSteps) {
          x[i % kHeldSteps] = statistics(ring.stage(), kind)[4 * (i + kHeldSteps)];
        }
      }
    }
  }
  // Of the pair j of an operand's step.
  __device__ static float2 statistic(const float4& x, int j) {
    return j < 2 ? float2{x.x, x.y} : float2{x.z, x.w};
  }

  // P = 2^(S scale log2(e) - lse log2(e)); with softcap, tanh(S scale / softcap) softcap in the
  // place of S scale, and its slope 1 - tanh².
  struct Probability {
    float p, slope;
  };
  __device__ Probability probability(float s, float offset) const {
    const ScoreParams& scores = c.params.scores;
    float slope = 1.0f;
    if constexpr (T.softcap) {
      s = accurate_tanh(s * scores.scale_over_softcap);
      slope = fmaf(-s, s, 1.0f);
    }
    return {ptx::ex2_approx_ftz(fmaf(s, scores.scale_log2, offset)), slope};
  }

  // P rounded, for dV. The accumulator layout of two 8-column groups is the A operand of one step
  // of 16 columns.
  template <Half kHalf, class FactorsOf>
  __device__ void probabilities(const Scores& rS, Statistics& rStats, Operand& rP,
                                FactorsOf& rFactors) const {
    for_each_step<kHalf>(rStats, kNegLseLog2, [&](int step, const float4& offsets) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 offset = statistic(offsets, j);
        const Probability a = probability(rS[8 * step + 2 * j], offset.x);
        const Probability b = probability(rS[8 * step + 2 * j + 1], offset.y);
        rP[step][j] = pack<T.element>(a.p, b.p);
        set_pair(rFactors, step, j, a.p * a.slope, b.p * b.slope);
      }
    });
  }

  // What dS is a multiple of, P times the slope, in the place of S.
  __device__ void factors_in_place(Scores& rS, Statistics& rStats) const {
    for_each_step<kBoth>(rStats, kNegLseLog2, [&](int step, const float4& offsets) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 offset = statistic(offsets, j / 2);
        float& s = rS[8 * step + j];
        const Probability x = probability(s, j % 2 == 0 ? offset.x : offset.y);
        s = T.softcap ? x.p * x.slope : x.p;
      }
    });
  }

  // Pairs of a step's factors, in f32 or rounded.
  __device__ static void set_pair(None&, int, int, float, float) {}
  __device__ static void set_pair(Operand& to, int step, int j, float a, float b) {
    to[step][j] = pack<T.element>(a, b);
  }
  __device__ static void set_pair(Scores& to, int step, int j, float a, float b) {
    to[8 * step + 2 * j] = a;
    to[8 * step + 2 * j + 1] = b;
  }
  __device__ static auto pairs_of(const Scores& x) {
    return [&x](int step, int j) { return float2{x[8 * step + 2 * j], x[8 * step + 2 * j + 1]}; };
  }
  __device__ static auto pairs_of(const Operand& x) {
    return [&x](int step, int j) {
      return float2{unpack_lower<T.element>(x[step][j]), unpack_upper<T.element>(x[step][j])};
    };
  }

  // Makes pairs of the step's queries zero that a key does not see. After the exponential, since
  // the scale may have any sign; and after the rounding, which ptxas would put off otherwise, and
  // with it the end of the scores' registers.
  template <Half kHalf>
  __device__ void hide(Operand& pairs) const {
    KeyBounds bounds[2];
    find_bounds(bounds);
    hide_pairs(Shape::template part<kHalf>(pairs), bounds,
               m * T.q_rows + Shape::begin(kHalf) * kMmaK);
  }
  __device__ void hide(Scores& p) const {
    KeyBounds bounds[2];
    find_bounds(bounds);
    mask_scores(p, bounds, m * T.q_rows, 0.0f);
  }
  // Of this thread's two keys, from its first column on.
  __device__ void find_bounds(QueryBounds (&bounds)[2]) const {
    const int first_column = 2 * (lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const QueryBounds b = bounds_of_key(c.params.mask, work.sequence, work.first_key() + row(r));
      bounds[r] = {b.begin - first_column, b.end - first_column};
    }
  }

  // dS = P (dP - delta), rounded; `factors(step, pair)` has P, with softcap times its slope. dS may
  // take its place.
  template <Half kHalf, class FactorsOf>
  __device__ void score_gradients(Operand& rDS, const Scores& rDP, Statistics& rStats,
                                  FactorsOf factors) const {
    for_each_step<kHalf>(rStats, kDelta, [&](int step, const float4& deltas) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 delta = statistic(deltas, j), factor = factors(step, j);
        const float dp0 = rDP[8 * step + 2 * j], dp1 = rDP[8 * step + 2 * j + 1];
        rDS[step][j] = pack<T.element>(factor.x * (dp0 - delta.x), factor.y * (dp1 - delta.y));
      }
    });
  }

  // Rows of dSᵀ for dQ = dS K, each block of queries in a stage of its own.
  template <Half kHalf>
  __device__ void store_ds(const Operand& rDS) const {
    constexpr int kBlockSteps = kQueryRows / kMmaK, kRowBytes = kQueryRows * kElementBytes;
    const int matrix = lane % 32 / 8;
    const int key = kWarpgroupKeys * warpgroup + 16 * (lane / 32) + lane % 8 + 8 * (matrix & 1);
#pragma unroll
    for (int step = Shape::begin(kHalf); step < Shape::end(kHalf); ++step) {
      const DsState<T> place = ds_of(step / kBlockSteps);
      const ptx::SmemAddr to =
          c.smem_address(c.kSmem.ds + place.stage() * kDsBytes + key * kRowBytes);
      if (step % kBlockSteps == 0) c.pipeline(kDsFull).producer_acquire(place);
      const int chunk = 2 * (step % kBlockSteps) + matrix / 2;
      ptx::stmatrix_x4(to + 16 * (chunk ^ slab_swizzle<kQueryRows>(key)), rDS[step][0],
                       rDS[step][1], rDS[step][2], rDS[step][3]);
    }
  }
  // Says that they are there.
  __device__ void announce_ds() const {
    ptx::fence_proxy_async_shared();
    __syncwarp();
#pragma unroll
    for (int block = 0; block < q_blocks(T); ++block) {
      if (lane % 32 == 0) ptx::mbarrier_arrive(c.barrier(kDsFull, ds_of(block).stage()));
    }
  }
  // The place of dS of the step's block-th block of queries.
  __device__ DsState<T> ds_of(int block) const {
    return {(kCountsDs ? ds.count : ring.count * q_blocks(T)) + block};
  }

  const Context<T>& c;
  const Work& work;
  const BlockRange rows;  // its blocks of queries
  const int warpgroup;
  const Products<T> products;
  const int lane;  // in the warpgroup

  RingState<T> ring;
  DsState<T> ds;  // of the next step, where kCountsDs
  const KState<T> k;
  bool has_v = false;  // it is there
  int m;               // the step's queries: m q_rows and on
  bool is_masked;      // some of the CTA's keys do not see all of them

  typename Products<T>::Keys rK;
  float rDK[kHasDk ? T.head_dim / 2 : 1], rDV[kHasDv ? T.head_dim_v / 2 : 1];
};

// Of a work without queries: nothing was loaded.
template <int kStages>
__device__ inline void pass(const Pipeline& pipeline, const PipelineState<kStages>& state) {
  pipeline.consumer_wait(state);
  __syncwarp();
  if (threadIdx.x % 32 == 0) pipeline.consumer_release(state);
}

// The works of a CTA.
template <BwdTraits T>
__device__ inline void math(const Context<T>& c, int warpgroup) {
  const int lane = threadIdx.x % kWarpgroupThreads;
  WorkReader<T> works(c);
  Rings<T> rings;
#pragma unroll 1
  for (;;) {
    const Work& work = works.wait();
    if (work.steps < 0) return;
    if (work.steps == 0) {
      GradientStore<T>{c, work, warpgroup, lane, c.kSmem.v}.store_zeros();
      pass(c.pipeline(kKFull), works.k());
      if (uses_v(work.part)) pass(c.pipeline(kVFull), VState{work.v});
    } else {
      if constexpr (!T.split) {
        rings = Math<T, Part::kAll>(c, work, warpgroup, rings, works.k()).run();
      } else if (work.part == Part::kDkAndDq) {
        rings = Math<T, Part::kDkAndDq>(c, work, warpgroup, rings, works.k()).run();
      } else {
        rings = Math<T, Part::kDv>(c, work, warpgroup, rings, works.k()).run();
      }
    }
    __syncwarp();
    works.release(lane % 32 == 0);
  }
}

}  // namespace fa4::sm90::bwd
