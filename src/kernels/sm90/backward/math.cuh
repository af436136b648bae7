// A math warpgroup: 64 keys of each work, from the first K Qᵀ to the last store of dk and dv
// (work_end.cuh).
#pragma once

#include "kernels/sm90/backward/elements.cuh"
#include "kernels/sm90/backward/work_end.cuh"

namespace fa4::sm90::bwd {

// One work with queries.
template <BwdTraits T, WorkKind kKind>
class Math {
 public:
  __device__ Math(const Context<T>& context, const Work& work, int warpgroup, KState<T> k, VState v,
                  HeldSums<T>& sums)
      : c(context),
        work(work),
        rows(work.rows),
        warpgroup(warpgroup),
        products{context, warpgroup, context.kSmem.k + k.stage() * k_bytes(T)},
        lane(threadIdx.x % kWarpgroupThreads),
        elements{context, warpgroup, lane},
        rings{work.steps_before},
        k(k),
        v(v),
        rDK(sums.dk()),
        rDV(sums.dv()) {}

  __device__ void run() {
    if constexpr (kHasDk) clear(rDK);
    if constexpr (kHasDv) clear(rDV);
    go_to(rows.n_block_min);
    Scores rS;
    if constexpr (kInHalves) clear(rS);  // dP and S are added to it, as far as ptxas knows
    Lse rLse;
    c.pipeline(kKFull).consumer_wait(k);
    wait_for_q(rings);
    products.load_keys(rK);
    products.issue_scores(rS, rK, rings);
    elements.load_lse(rLse, rings.q().stage());
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rS);
    if constexpr (kKind == WorkKind::kDkAndDq) c.pipeline(kVFull).consumer_wait(v);
    Operand rY;
    // The last step leaves the loop behind the arithmetic that all steps have, so that only its
    // products stand twice. Elsewhere, between two products, a condition would make ptxas serialise
    // them.
#pragma unroll 1
    for (int steps = work.steps;; --steps) {
      begin_step(rS, rLse, rY);
      if (steps == 1) break;
      end_step<false>(rS, rLse, rY);
    }
    end_step<true>(rS, rLse, rY);
    ptx::wgmma_wait_group<0>();
  }

 private:
  static constexpr bool kHasDk = kKind != WorkKind::kDv, kHasDv = kKind != WorkKind::kDkAndDq;
  using Shape = StepShape<T>;
  using Operand = typename Shape::Operand;
  using Scores = typename Shape::Scores;
  static constexpr int kMmaK = Shape::kMmaK, kSteps = Shape::kSteps;
  static constexpr bool kInHalves = Shape::kInHalves;
  using Arithmetic = Elements<T, kKind>;
  using Lse = typename Arithmetic::Lse;
  using Visible = typename Arithmetic::Visible;
  using Factors = typename Arithmetic::Factors;
  using None = typename Arithmetic::None;

  // A step is from its scores to those of the next one, in two pieces: the first ends with dS, or
  // P, as the operand of the second one's products. The last step has no next one.
  __device__ void begin_step(Scores& rS, Lse& rLse, Operand& rY) {
    if constexpr (kKind == WorkKind::kDv) {
      begin_for_dv(rS, rLse, rY);
    } else if constexpr (kKind == WorkKind::kDkAndDq) {
      begin_for_dk_and_dq(rS, rLse, rY);
    } else if constexpr (kInHalves) {
      begin_in_halves(rS, rLse, rY);
    } else {
      begin_whole(rS, rLse, rY);
    }
  }
  template <bool kIsLast>
  __device__ void end_step(Scores& rS, Lse& rLse, const Operand& rY) {
    const Rings<T, kKind> next{rings.steps + 1};
    if constexpr (kKind == WorkKind::kDv) {
      end_for_dv<kIsLast>(rS, rLse, rY, next);
    } else if constexpr (kKind == WorkKind::kDkAndDq) {
      end_for_dk_and_dq<kIsLast>(rS, rLse, rY, next);
    } else if constexpr (kInHalves) {
      end_in_halves<kIsLast>(rS, rLse, rY, next);
    } else {
      end_whole<kIsLast>(rS, rLse, rY, next);
    }
    rings = next;
  }

  // With softcap the next step's lse is read from shared memory while products run. These have
  // copies of P and dS, which the thread reads meanwhile (ptxas gives a value and its copy one
  // register). `rY`: P, then dS.
  __device__ void begin_whole(Scores& rS, Lse& rLse, Operand& rY) {
    const int q_stage = rings.q().stage();
    Scores rDP;
    Factors rFactors;
    elements.cap(rS, near, is_masked);
    elements.template probabilities<kBoth>(rS, rLse, q_stage, rY, rFactors);
    Visible visible;
    if (is_masked) {
      elements.find_visible(visible, work, m());
      elements.template hide<kBoth>(rY, visible);
    }
    wait_for_dout();
    wait_for_v();
    products.issue_dp(rDP, rings);
    products.template issue_dv<kBoth>(rDV, rY, rings);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rDP);
    if constexpr (T.softcap) {
      elements.template score_gradients<kBoth>(rY, rDP, Arithmetic::pairs_of(rFactors));
    } else {
      elements.template score_gradients<kBoth>(rY, rDP, Arithmetic::pairs_of(rY));
    }
    if (is_masked) elements.template hide<kBoth>(rY, visible);
  }
  template <bool kIsLast>
  __device__ void end_whole(Scores& rS, Lse& rLse, const Operand& rY, const Rings<T, kKind>& next) {
    products.template issue_dk<kBoth>(rDK, rY, rings);
    store_ds<kBoth>(rY);
    announce_ds();
    issue_next_scores<kIsLast>(rS, next);
    look_ahead<kIsLast>(rLse, next);
    ptx::wgmma_wait_group<0>();
    release_dout();
    release_q(rings);
    if constexpr (!kIsLast) ptx::fence_registers(rS);
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
  // and announced when its second half is there.
  __device__ void begin_in_halves(Scores& rX, Lse& rLse, Operand& rY) {
    const int q_stage = rings.q().stage();
    None none;
    Visible visible;
    elements.cap(rX, near, is_masked);
    elements.template probabilities<kFirst>(rX, rLse, q_stage, rY, none);
    if (is_masked) {
      elements.find_visible(visible, work, m());
      elements.template hide<kFirst>(rY, visible);
    }
    wait_for_dout();
    products.template issue_dv<kFirst>(rDV, rY, rings);
    ptx::wgmma_wait_group<1>();
    if (rings.steps > 0) release_q({rings.steps - 1});  // of the step before this one
    elements.template probabilities<kSecond>(rX, rLse, q_stage, rY, none);
    if (is_masked) elements.template hide<kSecond>(rY, visible);
    wait_for_v();
    products.issue_dp(rX, rings);
    products.template issue_dv<kSecond>(rDV, rY, rings);
    ptx::wgmma_wait_group<1>();
    ptx::fence_registers(rX);
    elements.template score_gradients<kFirst>(rY, rX, Arithmetic::pairs_of(rY));
    if (is_masked) elements.template hide<kFirst>(rY, visible);
    products.template issue_dk<kFirst>(rDK, rY, rings);
    store_ds<kFirst>(rY);
    ptx::wgmma_wait_group<1>();
    elements.template score_gradients<kSecond>(rY, rX, Arithmetic::pairs_of(rY));
    if (is_masked) elements.template hide<kSecond>(rY, visible);
    release_dout();
  }
  template <bool kIsLast>
  __device__ void end_in_halves(Scores& rX, Lse& rLse, const Operand& rY,
                                const Rings<T, kKind>& next) {
    issue_next_scores<kIsLast>(rX, next);
    store_ds<kSecond>(rY);
    look_ahead<kIsLast>(rLse, next);
    products.template issue_dk<kSecond>(rDK, rY, rings);
    announce_ds();
    if constexpr (!kIsLast) {
      ptx::wgmma_wait_group<1>();
      ptx::fence_registers(rX);
    }
  }

  // The same where dk and dq are computed, not dv: P stays in f32 in the registers of S, since no
  // product reads it. That the mask may change P keeps ptxas from computing it behind dP, for whose
  // registers and those of S at once there is no room. dK comes before the next S, so that the Q
  // behind the next one comes sooner, and the next one is waited for while dK runs.
  __device__ void begin_for_dk_and_dq(Scores& rS, Lse& rLse, Operand& rDS) {
    const int q_stage = rings.q().stage();
    Scores rDP;
    elements.cap(rS, near, is_masked);
    elements.factors_in_place(rS, rLse, q_stage);
    Visible visible;
    if (is_masked) {
      elements.find_visible(visible, work, m());
      elements.hide(rS, visible);
    }
    wait_for_dout();
    products.issue_dp(rDP, rings);
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rDP);
    elements.template score_gradients<kBoth>(rDS, rDP, Arithmetic::pairs_of(rS));
    if (is_masked) elements.template hide<kBoth>(rDS, visible);
    store_ds<kBoth>(rDS);
    announce_ds();
    release_dout();
  }
  template <bool kIsLast>
  __device__ void end_for_dk_and_dq(Scores& rS, Lse& rLse, const Operand& rDS,
                                    const Rings<T, kKind>& next) {
    products.template issue_dk<kBoth>(rDK, rDS, rings);
    if constexpr (T.stages == 1) give_q_away<0>();
    issue_next_scores<kIsLast>(rS, next);
    look_ahead<kIsLast>(rLse, next);
    if constexpr (T.stages > 1) give_q_away<kIsLast ? 0 : 1>();
    ptx::wgmma_wait_group<0>();
    if constexpr (!kIsLast) ptx::fence_registers(rS);
  }

  // The same where dv is all that is computed: Q is free when its scores are there.
  __device__ void begin_for_dv(Scores& rS, Lse& rLse, Operand& rP) {
    None none;
    __syncwarp();  // every lane has read its lse, which came with Q
    release_q(rings);
    elements.cap(rS, near, is_masked);
    elements.template probabilities<kBoth>(rS, rLse, rings.q().stage(), rP, none);
    if (is_masked) {
      Visible visible;
      elements.find_visible(visible, work, m());
      elements.template hide<kBoth>(rP, visible);
    }
  }
  template <bool kIsLast>
  __device__ void end_for_dv(Scores& rS, Lse& rLse, const Operand& rP,
                             const Rings<T, kKind>& next) {
    issue_next_scores<kIsLast>(rS, next);
    wait_for_dout();
    products.template issue_dv<kBoth>(rDV, rP, rings);
    look_ahead<kIsLast>(rLse, next);
    ptx::wgmma_wait_group<0>();
    if constexpr (!kIsLast) ptx::fence_registers(rS);
    release_dout();
  }

  // Q of the step when dK has read it: all but the last kPending products are done.
  template <int kPending>
  __device__ void give_q_away() const {
    ptx::wgmma_wait_group<kPending>();
    release_q(rings);
  }
  // S of the next step.
  template <bool kIsLast>
  __device__ void issue_next_scores(Scores& rS, const Rings<T, kKind>& next) const {
    if constexpr (!kIsLast) {
      wait_for_q(next);
      products.issue_scores(rS, rK, next);
    }
  }
  // What the next step needs of shared memory.
  template <bool kIsLast>
  __device__ void look_ahead(Lse& rLse, const Rings<T, kKind>& next) {
    if constexpr (!kIsLast) {
      elements.load_lse(rLse, next.q().stage());
      go_to_next();
    }
  }
  // Which block comes next, for one head or for all, and whether some of the CTA's keys do not see
  // all of it.
  __device__ void go_to(int next) {
    visit = next == rows.n_block_max ? rows.n_block_min : next;
    heads_left = c.params.order.heads_together != 0 ? c.params.group : 1;
    is_masked = visit >= rows.full_end || visit < rows.full_begin;
  }
  __device__ void go_to_next() {
    if (--heads_left == 0) go_to(visit + 1);
  }
  // The step's queries: m() q_rows and on.
  __device__ int m() const { return block_of_visit(visit); }

  template <int kCount>
  __device__ static void clear(float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = 0.0f;
    ptx::fence_registers(x);  // before any product is under way
  }

  __device__ void wait_for_q(const Rings<T, kKind>& of) const {
    c.template q_pipeline<kKind>().consumer_wait(of.q());
  }
  // Before the work's first dP: V comes when the dk and dv before have left its place, while the
  // first scores and probabilities are computed.
  __device__ void wait_for_v() {
    if (has_v) return;
    c.pipeline(kVFull).consumer_wait(v);
    has_v = true;
  }
  __device__ void wait_for_dout() const {
    c.template dout_pipeline<kKind>().consumer_wait(rings.dout());
  }
  __device__ void release_q(const Rings<T, kKind>& of) const {
    if (lane % 32 == 0) c.template q_pipeline<kKind>().consumer_release(of.q());
  }
  __device__ void release_dout() const {
    if (lane % 32 == 0) c.template dout_pipeline<kKind>().consumer_release(rings.dout());
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
      const int piece = 2 * (step % kBlockSteps) + matrix / 2;
      ptx::stmatrix_x4(to + 16 * (piece ^ slab_swizzle<kQueryRows>(key)), rDS[step][0],
                       rDS[step][1], rDS[step][2], rDS[step][3]);
    }
  }
  // Says that they are there. Who reads them by products has a proxy fence of its own, behind the
  // barrier: here it would wait until they are written.
  __device__ void announce_ds() const {
    __syncwarp();
#pragma unroll
    for (int block = 0; block < q_blocks(T); ++block) {
      if (lane % 32 == 0) ptx::mbarrier_arrive(c.barrier(kDsFull, ds_of(block).stage()));
    }
  }
  // The place of dS of the step's block-th block of queries.
  __device__ DsState<T> ds_of(int block) const { return {rings.steps * q_blocks(T) + block}; }

  const Context<T>& c;
  const Work& work;
  const BlockRange rows;  // the work's: a copy, which ptxas keeps in uniform registers
  const int warpgroup;
  const Products<T, kKind> products;
  const int lane;  // in the warpgroup
  const Arithmetic elements;

  Rings<T, kKind> rings;
  const KState<T> k;
  const VState v;
  bool has_v = false;  // it is there
  bool near = true;    // the work's scores so far are small beside softcap
  int visit;           // to a block of queries
  int heads_left;      // of the visit, this step's too
  bool is_masked;      // some of the CTA's keys do not see all of them

  typename Products<T, kKind>::Keys rK;
  float (&rDK)[T.head_dim / 2];
  float (&rDV)[T.head_dim_v / 2];
};

// Takes and gives back a stage of a work without queries, into which nothing was loaded.
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
#pragma unroll 1
  for (;;) {
    const auto& work = works.wait();
    if (work.steps < 0) return;
    if (work.steps == 0) {
      GradientStore<T>{c, work, warpgroup, lane, c.kSmem.v}.store_zeros();
      pass(c.pipeline(kKFull), works.k());
      pass(c.pipeline(kVFull), works.v());
    } else {
      HeldSums<T> sums;
      if (!T.split || work_kind_of(work) != WorkKind::kDv) {
        Math<T, kind_with_dk(T)>(c, work, warpgroup, works.k(), works.v(), sums).run();
      } else if constexpr (T.split) {
        Math<T, WorkKind::kDv>(c, work, warpgroup, works.k(), works.v(), sums).run();
      }
      WorkEnd<T>{c, work, warpgroup, works.k(), works.v()}.run(sums);
    }
    works.recall(work);  // no register has kept its number through the steps
    __syncwarp();
    works.release(lane % 32 == 0);
  }
}

}  // namespace fa4::sm90::bwd
