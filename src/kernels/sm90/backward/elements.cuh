// What a math thread computes between products: probabilities, masks, the gradients of scores. A
// thread of wgmma has two keys of the warpgroup's 64 and every fourth pair of queries.
#pragma once

#include "kernels/base/choice.h"
#include "kernels/scores/mask_fragment.cuh"
#include "kernels/scores/softcap.cuh"
#include "kernels/sm90/backward/products.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4::sm90::bwd {

template <BwdTraits T, WorkKind kKind>
struct Elements {
  using Shape = StepShape<T>;
  using Operand = typename Shape::Operand;
  using Scores = typename Shape::Scores;
  static constexpr int kMmaK = Shape::kMmaK, kSteps = Shape::kSteps;

  // -lse log2(e) of a step's columns, where threads take it off: of its first steps of products,
  // the others' are loaded in their places. With more of them ptxas lacks the registers to have
  // several scores' tanh under way; dk of 192 columns or more, P in f32 and dP leave room for one.
  // Works for dv give their place away before they exponentiate, and so hold all.
  static constexpr bool kIsCrowded = kKind == WorkKind::kDkAndDq && T.head_dim >= 192;
  static constexpr int kHeldSteps = kKind == WorkKind::kDv ? kSteps : kIsCrowded ? 1 : 2;
  using Lse = float4[kHeldSteps];
  // With softcap P (1 - tanh²), which takes the place of P in dS; without it nothing. Rounded here
  // and again as dS, it would break the accuracy bounds of f16 in narrow heads; wide heads have
  // registers for rounded pairs only, and more columns to average over.
  struct None {};
  using Factors = Choice<!T.softcap || kKind != WorkKind::kAll, None,
                         Choice<T.head_dim <= 64, Scores, Operand>>;

  const Context<T>& c;
  int warpgroup;
  int lane;  // in the warpgroup

  // Loads the lse of a stage's rows; nothing where the tensor cores subtract it.
  __device__ void load_lse(Lse& x, int stage) const {
    if constexpr (!multiplies_lse(T)) {
#pragma unroll
      for (int i = 0; i < kHeldSteps; ++i) x[i] = lse_of(stage)[4 * i];
    }
  }

  // With softcap S becomes tanh(S scale / softcap), of which softcap is the scale then.
  // `near`: all of the work's were small beside it so far; for that split works lack a register.
  // Under a mask, where scores of others may stand, nobody looks.
  __device__ void cap(Scores& rS, bool& near, bool is_masked) const {
    if constexpr (!T.softcap) return;
    bool own = !is_masked && (kKind != WorkKind::kAll || near);
    tanh_scores(rS, c.params.scale_over_softcap, c.params.near, own);
    if (kKind == WorkKind::kAll && !is_masked) near = own;
  }

  // P rounded, for dV. The accumulator layout of two 8-column groups is the A operand of one step
  // of 16 columns.
  template <Half kHalf, class FactorsOf>
  __device__ void probabilities(const Scores& rS, Lse& rLse, int stage, Operand& rP,
                                FactorsOf& rFactors) const {
    for_each_step<kHalf>(rLse, stage, [&](int step, const float4& offsets) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 offset = offset_of(offsets, j);
        const Probability a = probability(rS[8 * step + 2 * j], offset.x);
        const Probability b = probability(rS[8 * step + 2 * j + 1], offset.y);
        rP[step][j] = pack<T.element>(a.p, b.p);
        set_pair(rFactors, step, j, a.p * a.slope, b.p * b.slope);
      }
    });
  }

  // What dS is a multiple of, P times the slope, in the place of S.
  __device__ void factors_in_place(Scores& rS, Lse& rLse, int stage) const {
    for_each_step<kBoth>(rLse, stage, [&](int step, const float4& offsets) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 offset = offset_of(offsets, j / 2);
        float& s = rS[8 * step + j];
        const Probability x = probability(s, j % 2 == 0 ? offset.x : offset.y);
        s = T.softcap ? x.p * x.slope : x.p;
      }
    });
  }

  // Pairs of a step's factors, in f32 or rounded.
  __device__ static auto pairs_of(const Scores& x) {
    return [&x](int step, int j) { return float2{x[8 * step + 2 * j], x[8 * step + 2 * j + 1]}; };
  }
  __device__ static auto pairs_of(const Operand& x) {
    return [&x](int step, int j) {
      return float2{unpack_lower<T.element>(x[step][j]), unpack_upper<T.element>(x[step][j])};
    };
  }

  // Which of the step's queries this thread's two keys see: a bit for each column.
  using Visible = uint32_t[2];
  __device__ void find_visible(Visible& visible, const Work& work, int m) const {
    static_assert(T.q_rows / 4 <= 32);  // columns of a thread: one word has them
    const int first_column = m * T.q_rows + 2 * (lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const QueryBounds bounds =
          bounds_of_key(c.params.mask, work.sequence, work.first_key() + row(r));
      visible[r] = visible_columns(bounds, first_column);
    }
  }

  // Makes pairs of the step's queries zero that a key does not see. P after the exponential, since
  // the scale may have any sign; and after the rounding, which ptxas would put off otherwise, and
  // with it the end of the scores' registers. dS too, which is not zero where dP is infinite.
  template <Half kHalf>
  __device__ static void hide(Operand& pairs, const Visible& visible) {
    hide_pairs(Shape::template part<kHalf>(pairs), visible, 4 * Shape::begin(kHalf));
  }
  __device__ static void hide(Scores& p, const Visible& visible) {
#pragma unroll
    for (int r = 0; r < 2; ++r) mask_columns(p, r, 0, visible[r], 0.0f);
  }

  // dS = P (dP - delta), rounded, of which the products have made the difference; `factors(step,
  // pair)` has P, with softcap times its slope. dS may take its place.
  template <Half kHalf, class FactorsOf>
  __device__ void score_gradients(Operand& rDS, const Scores& rDP, FactorsOf factors) const {
#pragma unroll
    for (int step = Shape::begin(kHalf); step < Shape::end(kHalf); ++step) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 factor = factors(step, j);
        const float dp0 = rDP[8 * step + 2 * j], dp1 = rDP[8 * step + 2 * j + 1];
        rDS[step][j] = pack<T.element>(factor.x * dp0, factor.y * dp1);
      }
    }
  }

 private:
  // -lse log2(e) of this thread's columns: of each 16 those of fragment_place.
  __device__ const float4* lse_of(int stage) const {
    return reinterpret_cast<const float4*>(c.smem + c.kSmem.stats +
                                           stage * stage_statistics_bytes(T) + terms_bytes(T)) +
           lane % 4;
  }
  // Calls visit(i, what exponents of step i have added) for every step of 16 columns.
  template <Half kHalf, class Visit>
  __device__ void for_each_step(Lse& x, int stage, Visit visit) const {
#pragma unroll
    for (int i = Shape::begin(kHalf); i < Shape::end(kHalf); ++i) {
      if constexpr (multiplies_lse(T)) {
        visit(i, float4{});
      } else {
        visit(i, x[i % kHeldSteps]);
        if (i + kHeldSteps < kSteps) x[i % kHeldSteps] = lse_of(stage)[4 * (i + kHeldSteps)];
      }
    }
  }
  // The two offsets of pair j of an operand's step.
  __device__ static float2 offset_of(const float4& x, int j) {
    return j < 2 ? float2{x.x, x.y} : float2{x.z, x.w};
  }

  // P = 2^(S scale log2(e) - lse log2(e)); with softcap S is tanh, and its slope 1 - tanh².
  struct Probability {
    float p, slope;
  };
  __device__ Probability probability(float s, float offset) const {
    return {ptx::ex2_approx_ftz(fmaf(s, c.params.scores.scale_log2, offset)),
            T.softcap ? fmaf(-s, s, 1.0f) : 1.0f};
  }

  // Stores pair j of a step's factors as their type wants it: not at all, in f32, or rounded.
  __device__ static void set_pair(None&, int, int, float, float) {}
  __device__ static void set_pair(Operand& to, int step, int j, float a, float b) {
    to[step][j] = pack<T.element>(a, b);
  }
  __device__ static void set_pair(Scores& to, int step, int j, float a, float b) {
    to[8 * step + 2 * j] = a;
    to[8 * step + 2 * j + 1] = b;
  }
  // The thread's r-th key, counted from the work's first.
  __device__ int row(int r) const {
    return kWarpgroupKeys * warpgroup + 16 * (lane / 32) + lane % 32 / 4 + 8 * r;
  }
};

}  // namespace fa4::sm90::bwd
