// A math warpgroup: 64 keys of each work, from the first K Qᵀ to the last store of dk and dv.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/backward/elements.cuh"
#include "kernels/sm90/backward/store.cuh"

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
        elements{context, warpgroup, lane},
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
    elements.load_lse(rStats, ring.stage());
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
  using Arithmetic = Elements<T, kPart>;
  using Statistics = typename Arithmetic::Statistics;
  using Factors = typename Arithmetic::Factors;
  using None = typename Arithmetic::None;

  // From the scores of a step to those of the next one. After the last step S is computed once
  // more, and nobody reads it: a condition between two products would make ptxas serialise them.
  // Statistics and what the next block is are read from shared memory while products run; P and dS
  // too are read then, of which the product under way has copies (ptxas gives them one register).
  __device__ void visit(Scores& rS, Statistics& rStats, bool has_next) {
    const int stage = ring.stage();
    Scores rDP;
    Operand rY;  // P, then dS
    Factors rFactors;
    elements.template probabilities<kBoth>(rS, rStats, stage, rY, rFactors);
    if (is_masked) elements.template hide<kBoth>(rY, work, m);
    wait_for_dout();
    wait_for_v();
    products.issue_dp(rDP, stage);
    products.template issue_dv<kBoth>(rDV, rY, stage);
    if constexpr (!T.softcap) elements.load_delta(rStats, stage);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rDP);
    if constexpr (T.softcap) {
      // Registers hold no delta beside P, its product with the slope and dP.
      elements.load_delta(rStats, stage);
      elements.template score_gradients<kBoth>(rY, rDP, rStats, stage,
                                               Arithmetic::pairs_of(rFactors));
      if (is_masked) elements.template hide<kBoth>(rY, work, m);
    } else {
      elements.template score_gradients<kBoth>(rY, rDP, rStats, stage, Arithmetic::pairs_of(rY));
    }
    const RingState<T> next{ring.count + has_next};
    products.template issue_dk<kBoth>(rDK, rY, stage);
    store_ds<kBoth>(rY);
    announce_ds();
    wait_for_q(next);
    products.issue_scores(rS, rK, next.stage());
    elements.load_lse(rStats, next.stage());
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
    elements.template probabilities<kFirst>(rX, rStats, stage, rY, none);
    if (is_masked) elements.template hide<kFirst>(rY, work, m);
    wait_for_dout();
    products.template issue_dv<kFirst>(rDV, rY, stage);
    ptx::wgmma_wait_group<1>();
    release_last(kQFull);
    elements.template probabilities<kSecond>(rX, rStats, stage, rY, none);
    if (is_masked) elements.template hide<kSecond>(rY, work, m);
    wait_for_v();
    products.issue_dp(rX, stage);
    products.template issue_dv<kSecond>(rDV, rY, stage);
    elements.load_delta(rStats, stage);
    ptx::wgmma_wait_group<1>();
    ptx::fence_registers(rX);
    elements.template score_gradients<kFirst>(rY, rX, rStats, stage, Arithmetic::pairs_of(rY));
    products.template issue_dk<kFirst>(rDK, rY, stage);
    store_ds<kFirst>(rY);
    ptx::wgmma_wait_group<1>();
    elements.template score_gradients<kSecond>(rY, rX, rStats, stage, Arithmetic::pairs_of(rY));
    release(kDoutFull, ring);
    wait_for_q(next);
    products.issue_scores(rX, rK, next.stage());
    store_ds<kSecond>(rY);
    elements.load_lse(rStats, next.stage());
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
    elements.factors_in_place(rS, rStats, stage);
    if (is_masked) elements.hide(rS, work, m);
    wait_for_dout();
    products.issue_dp(rDP, stage);
    if constexpr (!Arithmetic::kIsCrowded) elements.load_delta(rStats, stage);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rDP);
    if constexpr (Arithmetic::kIsCrowded) elements.load_delta(rStats, stage);
    elements.template score_gradients<kBoth>(rDS, rDP, rStats, stage, Arithmetic::pairs_of(rS));
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
    elements.load_lse(rStats, next.stage());
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
    elements.template probabilities<kBoth>(rS, rStats, ring.stage(), rP, none);
    if (is_masked) elements.template hide<kBoth>(rP, work, m);
    wait_for_q(next);
    products.issue_scores(rS, rK, next.stage());
    wait_for_dout();
    products.template issue_dv<kBoth>(rDV, rP, ring.stage());
    elements.load_lse(rStats, next.stage());
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
  const Arithmetic elements;

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
