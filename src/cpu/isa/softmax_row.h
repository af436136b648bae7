// One row's step of the online softmax over a block of keys, on any vector type.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cpu/isa/compensated_sum.h"
#include "cpu/tile_job.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {
namespace {

// Rounds a number that it is added to to an integer, whose last bits are then the exponent field of
// that power of two: as exp2_polynomial (exponential.cc).
template <class Number>
constexpr Number kRoundToExponent = 12582912.0f + 127.0f;
template <>
constexpr double kRoundToExponent<double> = 0x1.8p52 + 1023;

// `value` as a column: from 0 to `high`.
constexpr int clamp_to(int64_t value, int high) {
  return value < 0 ? 0 : value > high ? high : static_cast<int>(value);
}

template <class V, int kDegree, int kPower = 0>
typename V::F exp2_horner(typename V::F f) {
  if constexpr (kPower == kDegree) {
    return V::set1(kExp2Coefficient<kDegree, kPower>);
  } else {
    return V::fma(exp2_horner<V, kDegree, kPower + 1>(f), f,
                  V::set1(kExp2Coefficient<kDegree, kPower>));
  }
}

// 2^x for x <= 127, in additions, a shift and a multiplication: 0 for x <= -127. NaN stays NaN: max
// keeps its second operand, and a NaN fraction makes the polynomial one whatever the exponent's
// bits are.
template <class V, int kDegree>
typename V::F exp2_vector(typename V::F x) {
  x = V::max(V::set1(kExp2Lowest), x);
  const auto round = V::set1(kRoundToExponent<float>);
  const auto shifted = V::add(x, round);
  const auto fraction = V::sub(x, V::sub(shifted, round));
  return V::mul(exp2_horner<V, kDegree>(fraction), V::to_exponent(shifted));
}

// 2^(x + low), `low` being far below 1; beside an infinite x it may be anything.
template <class V, int kDegree>
typename V::F exp2_vector(typename V::F x, typename V::F low) {
  x = V::max(V::set1(kExp2Lowest), x);
  low = V::max(V::min(low, V::set1(1.0f)), V::set1(-1.0f));
  const auto round = V::set1(kRoundToExponent<float>);
  const auto shifted = V::add(x, round);
  const auto fraction = V::add(V::sub(x, V::sub(shifted, round)), low);
  return V::mul(exp2_horner<V, kDegree>(fraction), V::to_exponent(shifted));
}

// Terms of (2^f - 1) / f that tanh_and_slope sums: for |f| <= 1/2 the next is below one ulp of a
// float, and below 2^-36.
template <class Number>
constexpr int kTaylorTerms = 7;
template <>
constexpr int kTaylorTerms<double> = 9;

// The largest y of tanh_and_slope, and 4 / 2^y of it.
template <class Number>
constexpr Number kMostOfTanh = 126;
template <>
constexpr double kMostOfTanh<double> = 1000;
template <class Number>
constexpr Number kLeastSlope = 0x1p-124f;
template <>
constexpr double kLeastSlope<double> = 0x1p-998;

// The coefficient of f^(n - 1): log(2)^n / n!.
constexpr double taylor_coefficient(int n) {
  double coefficient = 1;
  for (int i = 1; i <= n; ++i) coefficient *= 0.6931471805599453 / i;
  return coefficient;
}

template <class V, int kTerms, int kTerm = 1>
typename V::F taylor_horner(typename V::F f) {
  const auto coefficient = V::set1(static_cast<typename V::Number>(taylor_coefficient(kTerm)));
  if constexpr (kTerm == kTerms) {
    return coefficient;
  } else {
    return V::fma(taylor_horner<V, kTerms, kTerm + 1>(f), f, coefficient);
  }
}

// tanh(x) = (e - 1) / (e + 1) for e = 2^y and y = 2 x log2(e), with 2^y - 1 = 2^n (2^f - 1) + (2^n
// - 1) so that small arguments keep their digits, and its slope 1 - tanh(x)^2 = 4 e / (e + 1)^2,
// which so keeps those where tanh is nearly 1.
template <class V>
struct TanhAndSlope {
  typename V::F tanh, slope;
};
template <class V>
TanhAndSlope<V> tanh_and_slope(typename V::F y) {
  // tanh is +-1 in float from 30 on. Its slope goes on to fall, and the gradients of rows whose
  // scores are all at the cap with it: (e + 1)^2, which would be infinite, appears nowhere, and
  // what is left at the ends is taken off.
  using Number = typename V::Number;
  y = V::max(V::set1(-kMostOfTanh<Number>), V::min(V::set1(kMostOfTanh<Number>), y));
  const auto round = V::set1(kRoundToExponent<Number>);
  const auto shifted = V::add(y, round);
  const auto f = V::sub(y, V::sub(shifted, round));
  const auto power = V::to_exponent(shifted);
  const auto part = V::mul(taylor_horner<V, kTaylorTerms<Number>>(f), f);
  const auto less_one = V::fma(power, part, V::sub(power, V::set1(1.0f)));
  const auto sum = V::add(less_one, V::set1(2.0f));
  const auto e = V::fma(power, part, power);
  const auto of_two = V::div(V::set1(2.0f), sum);
  const auto slope = V::fma(V::mul(e, of_two), of_two, V::set1(-kLeastSlope<Number>));
  return {V::div(less_one, sum), V::max(V::zero(), slope)};
}

// Columns [first, end) of the tile's block that this step works on, multiples of the panel, and
// those that the row sees, [see_first, see_end).
struct Columns {
  int first, end;
  int see_first, see_end;
};

template <class V>
void descale_scores(const float* descales, float* s, Columns c) {
  for (int n = c.first; n < c.end; n += V::kLanes) {
    V::store(s + n, V::mul(V::load(s + n), V::load(descales + n)));
  }
}

template <class V>
void cap_scores(const TileJob& job, float* s, Columns c) {
  const auto scale = V::set1(static_cast<typename V::Number>(job.softcap_scale));
  for (int n = c.first; n < c.end; n += V::kLanes) {
    V::store(s + n, tanh_and_slope<V>(V::mul(V::load(s + n), scale)).tanh);
  }
}

template <class V>
void mask_scores(float* s, Columns c) {
  for (int n = c.first; n < c.end; n += V::kLanes) {
    if (n >= c.see_first && n + V::kLanes <= c.see_end) continue;
    V::store(s + n, V::keep_range(V::load(s + n), c.see_first - n, c.see_end - n));
  }
}

// A NaN among them may be lost: it still reaches the row's sum and products.
template <class V>
float max_of_scores(const float* s, Columns c) {
  auto max0 = V::load(s + c.first), max1 = max0;
  for (int n = c.first; n < c.end; n += 2 * V::kLanes) {
    max0 = V::max(max0, V::load(s + n));
    max1 = V::max(max1, V::load(s + n + V::kLanes));
  }
  return V::reduce_max(V::max(max0, max1));
}

template <class V>
void rescale_row(const TileJob& job, int row, float factor) {
  const auto f = V::set1(factor);
  if (job.o_low != nullptr) {
    const int64_t sum_at = static_cast<int64_t>(row) * V::kLanes;
    scale_compensated<V>(f, job.row_sum + sum_at, job.row_sum_low + sum_at);
    const int64_t at = static_cast<int64_t>(row) * job.head_dim_v;
    for (int64_t d = at; d < at + job.head_dim_v; d += V::kLanes) {
      scale_compensated<V>(f, job.o + d, job.o_low + d);
      if (job.o_plain != nullptr) V::store(job.o_plain + d, V::mul(V::load(job.o_plain + d), f));
    }
    return;
  }
  float* sum = job.row_sum + static_cast<int64_t>(row) * V::kLanes;
  V::store(sum, V::mul(V::load(sum), f));
  float* o = job.o + static_cast<int64_t>(row) * job.head_dim_v;
  for (int d = 0; d < job.head_dim_v; d += V::kLanes) V::store(o + d, V::mul(V::load(o + d), f));
}

// The maximum of a row whose first visible scores these are; -inf while all of them are. Raised to
// kLowestMaxLog2: what lies below it is beyond the limit, and its rounding would be a power of its
// own.
inline float first_maximum(float block_max) {
  const bool is_low = block_max < kLowestMaxLog2 && block_max != -__builtin_inff();
  return is_low ? kLowestMaxLog2 : block_max;
}

// Returns what is subtracted from every score: the row's maximum, stale while the new one is at
// most rescale_threshold above it.
template <class V>
float update_maximum(const TileJob& job, int row, float block_max) {
  float& row_max = job.row_max[row];
  if (row_max == -__builtin_inff()) {
    row_max = first_maximum(block_max);
  } else if (block_max > row_max + job.rescale_threshold) {
    float factor[V::kLanes];
    V::store(factor, exp2_vector<V, 5>(V::set1(row_max - block_max)));
    rescale_row<V>(job, row, factor[0]);
    row_max = block_max;
  }
  return row_max == -__builtin_inff() ? 0.0f : row_max;
}

// Path: a vector type V with store_probabilities(P*, F, F) for 2 kLanes columns, and Doubles. The
// probabilities are stored times the values' descales, which are those of the block.
template <class Path, int kDegree>
void softmax_row(const TileJob& job, int row, float* s, typename Path::P* p, Columns c,
                 const BlockDescales& descales) {
  using V = Path;
  if (descales.keys != nullptr) descale_scores<V>(descales.keys, s, c);
  float scale = job.scale_log2;
  if (job.softcap_log2 != 0) {
    // f32's bound allows a capped score about the rounding of a float: no more than the last step
    // may round, and tanh of floats has five such steps.
    cap_scores<std::conditional_t<kDegree == 6, typename V::Doubles, V>>(job, s, c);
    scale = job.softcap_log2;
  }
  if (c.see_first > c.first || c.see_end < c.end) mask_scores<V>(s, c);
  const float subtracted = update_maximum<V>(job, row, max_of_scores<V>(s, c) * scale);

  const auto factor = V::set1(scale), offset = V::set1(-subtracted);
  auto sum0 = V::zero(), sum1 = sum0;
  for (int n = c.first; n < c.end; n += 2 * V::kLanes) {
    auto p0 = exp2_vector<V, kDegree>(V::fma(V::load(s + n), factor, offset));
    auto p1 = exp2_vector<V, kDegree>(V::fma(V::load(s + n + V::kLanes), factor, offset));
    sum0 = V::add(sum0, p0);
    sum1 = V::add(sum1, p1);
    if (descales.values != nullptr) {
      p0 = V::mul(p0, V::load(descales.values + n));
      p1 = V::mul(p1, V::load(descales.values + n + V::kLanes));
    }
    V::store_probabilities(p + n, p0, p1);
  }
  const int64_t at = static_cast<int64_t>(row) * V::kLanes;
  float* sum = job.row_sum + at;
  if constexpr (kDegree == 6) {
    add_compensated<V>(V::add(sum0, sum1), sum, job.row_sum_low + at);
  } else {
    V::store(sum, V::add(V::load(sum), V::add(sum0, sum1)));
  }
}

}  // namespace
}  // namespace fa4::internal
