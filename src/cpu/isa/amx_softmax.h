// The online softmax of the AMX path: a row of half a panel of scores at a time.
//
// A row's maximum is set by its first scores and kept while the probabilities stay small enough. It
// is their sums that are looked at, so that scores take no pass for their maximum. A row decides
// alone: what other rows see changes none of its bits.
#pragma once

#include <cstdint>

#include "cpu/isa/softmax_row.h"
#include "cpu/tile_job.h"

#define FA4_INLINE __attribute__((always_inline)) inline

namespace fa4::internal {
namespace {

constexpr int kItemRows = 32;  // of two tiles
constexpr int kStep = 32;      // columns of two B panels; bf16 of one A tile row
constexpr int kPanel = 64;     // columns of the scores under way, kStep of them a half

// 2^f of f in [0, 1) as straight lines, one for each of 32 pieces: at_zero + slope f. A line is the
// chord of its piece times 1 - h^2/16, h = log(2)/32, which halves the chord's largest error.
constexpr int kPieces = 32;
constexpr double power_of_two(double x) {  // x in [0, 1]
  double sum = 1, power = 1;
  for (int n = 1; n < 24; ++n) sum += taylor_coefficient(n) * (power *= x);
  return sum;
}
struct Exp2Lines {
  constexpr Exp2Lines() {
    constexpr double kWidth = 1.0 / kPieces, kStepOfLog = 0.6931471805599453 / kPieces;
    constexpr double kBelowChord = 1 - kStepOfLog * kStepOfLog / 16;
    for (int i = 0; i < kPieces; ++i) {
      const double low = power_of_two(i * kWidth), high = power_of_two((i + 1) * kWidth);
      slope[i] = static_cast<float>((high - low) / kWidth * kBelowChord);
      at_zero[i] = static_cast<float>((low - (high - low) * i) * kBelowChord);
    }
  }
  float at_zero[kPieces] = {}, slope[kPieces] = {};
};
alignas(64) constexpr Exp2Lines kExp2Lines;
constexpr float kExp2LinesMaxRelativeError = 3.0e-5f;

// What the exponential of every score needs, in registers.
template <class V>
struct SoftmaxConstants {
  using F = typename V::F;

  SoftmaxConstants(float scale, float limit_of_sums)
      : factor(V::set1(scale)), limit(V::set1(limit_of_sums)) {}

  // 2^x; 0 for -infinity, NaN for NaN, infinity from 128 on.
  FA4_INLINE F exp2(F x) const {
    const F f = V::fraction(x);
    const auto piece = V::piece_of(f);
    const F line = V::fma(V::look_up(slope, piece), f, V::look_up(at_zero, piece));
    return V::scale_by_floor(line, x);
  }

  // Probabilities of one row of half a panel, stored times the values' descales, and their sums, a
  // lane each.
  template <bool kDescales>
  FA4_INLINE F probabilities(const float* s, F subtracted, const float* descales,
                             typename V::P* p) const {
    static_assert(kStep == 2 * V::kLanes);
    const auto stored = [descales](F x, int vector) {
      if constexpr (!kDescales) return x;
      return V::mul(x, V::load(descales + vector * V::kLanes));
    };
    const F p0 = exp2(V::fms(V::load(s), factor, subtracted));
    const F p1 = exp2(V::fms(V::load(s + V::kLanes), factor, subtracted));
    V::store_probabilities(p, stored(p0, 0), stored(p1, 1));
    return V::add(p0, p1);
  }

  F factor, limit;

 private:
  const typename V::Table at_zero = V::table(kExp2Lines.at_zero);
  const typename V::Table slope = V::table(kExp2Lines.slope);
};

// One row's probabilities of `halves` half panels, times `factor`.
template <class V>
void scale_probabilities(typename V::P* p, int halves, float factor) {
  const auto f = V::set1(factor);
  for (int i = 0; i < halves; ++i, p += kItemRows * kStep) {
    const auto low = V::mul(V::load_probabilities(p), f);
    V::store_probabilities(p, low, V::mul(V::load_probabilities(p + V::kLanes), f));
  }
}

// Moves the row's maximum up to its scores', and returns by what all that was computed with the old
// one has to be multiplied.
template <class V>
float move_maximum(const float* s, float scale, float& row_max) {
  const Columns all{0, kStep, 0, kStep};
  const float half_max = max_of_scores<V>(s, all) * scale, old = row_max;
  if (old == -__builtin_inff()) {
    row_max = first_maximum(half_max);
    return 1.0f;
  }
  if (!(half_max > old)) return 1.0f;
  row_max = half_max;
  float factor[V::kLanes];
  V::store(factor, exp2_vector<V, 5>(V::set1(old - row_max)));
  return factor[0];
}

}  // namespace
}  // namespace fa4::internal
