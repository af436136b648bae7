// The online softmax of the AMX path: a row of one panel of scores at a time.
//
// A row's maximum is set by its first panel and kept while the probabilities stay small enough. It
// is their sums that are looked at, so that a panel takes no pass for its maximum. A row decides
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
constexpr int kPanel = 64;     // columns of the scores under way

// Coefficients of 2^f on [0, 1]: those on [-1/2, 1/2], moved, times the root of 2. The relative
// error is the same.
template <int kDegree, int kTerm>
constexpr double moved_term(int power) {
  if constexpr (kTerm > kDegree) {
    return 0;
  } else {
    double binomial = 1, shift = 1;
    for (int i = 0; i < power; ++i) binomial = binomial * (kTerm - i) / (i + 1);
    for (int i = power; i < kTerm; ++i) shift *= -0.5;
    const double term = kTerm < power ? 0 : kExp2Coefficient<kDegree, kTerm> * binomial * shift;
    return term + moved_term<kDegree, kTerm + 1>(power);
  }
}
template <int kDegree, int kPower>
constexpr float kMovedCoefficient =
    static_cast<float>(1.4142135623730951 * moved_term<kDegree, 0>(kPower));

// What the exponential of every score needs, in registers.
template <class V, int kDegree>
struct SoftmaxConstants {
  using F = typename V::F;

  SoftmaxConstants(float scale, float limit_of_sums)
      : factor(V::set1(scale)), limit(V::set1(limit_of_sums)) {
    set_coefficients<0>();
  }

  // 2^x; 0 for -infinity, NaN for NaN, infinity from 128 on.
  F exp2(F x) const {
    const F f = V::fraction(x);
    F value = coefficients[kDegree];
#pragma GCC unroll 8
    for (int power = kDegree - 1; power >= 0; --power) {
      value = V::fma(value, f, coefficients[power]);
    }
    return V::scale_by_floor(value, x);
  }

  // Probabilities of one row of a panel, stored times the values' descales, and their sums, a lane
  // each.
  template <bool kDescales>
  F probabilities(const float* s, F subtracted, const float* descales, typename V::P* p) const {
    static_assert(kPanel == 4 * V::kLanes);
    const auto stored = [descales](F x, int vector) {
      if constexpr (!kDescales) return x;
      return V::mul(x, V::load(descales + vector * V::kLanes));
    };
    const F p0 = exp2(V::fms(V::load(s), factor, subtracted));
    const F p1 = exp2(V::fms(V::load(s + V::kLanes), factor, subtracted));
    const F p2 = exp2(V::fms(V::load(s + 2 * V::kLanes), factor, subtracted));
    const F p3 = exp2(V::fms(V::load(s + 3 * V::kLanes), factor, subtracted));
    V::store_probabilities(p, stored(p0, 0), stored(p1, 1));
    V::store_probabilities(p + kItemRows * kStep, stored(p2, 2), stored(p3, 3));
    return V::add(V::add(p0, p1), V::add(p2, p3));
  }

  F coefficients[kDegree + 1];
  F factor, limit;

 private:
  template <int kPower>
  void set_coefficients() {
    coefficients[kPower] = V::set1(kMovedCoefficient<kDegree, kPower>);
    if constexpr (kPower < kDegree) set_coefficients<kPower + 1>();
  }
};

// One row's probabilities of `panels` panels, times `factor`.
template <class V>
void scale_probabilities(typename V::P* p, int panels, float factor) {
  const auto f = V::set1(factor);
  for (int i = 0; i < panels * kPanel / kStep; ++i, p += kItemRows * kStep) {
    const auto low = V::mul(V::load_probabilities(p), f);
    V::store_probabilities(p, low, V::mul(V::load_probabilities(p + V::kLanes), f));
  }
}

// Moves the row's maximum up to its scores', and returns by what all that was computed with the old
// one has to be multiplied.
template <class V>
float move_maximum(const float* s, float scale, float& row_max) {
  const Columns all{0, kPanel, 0, kPanel};
  const float panel_max = max_of_scores<V>(s, all) * scale, old = row_max;
  if (old == -__builtin_inff()) {
    row_max = first_maximum(panel_max);
    return 1.0f;
  }
  if (!(panel_max > old)) return 1.0f;
  row_max = panel_max;
  float factor[V::kLanes];
  V::store(factor, exp2_vector<V, 5>(V::set1(old - row_max)));
  return factor[0];
}

}  // namespace
}  // namespace fa4::internal
