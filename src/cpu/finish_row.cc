#include "cpu/finish_row.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {

RowEnd finish_row(float row_max, float row_sum, bool sees_keys, const float* sink) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float logit = sink == nullptr ? -kInfinity : *sink;
  if (!sees_keys) return {0.0f, logit};
  // A maximum of lanes forgets a score that is NaN, its power does not.
  if (std::isnan(row_sum)) return {kNan, kNan};
  if (is_nothing_beside(row_max, logit)) return {0.0f, logit};
  if (!(std::fabs(row_max) < kScoreLimitLog2)) return {kNan, kNan};
  // The larger of the two is the reference, so that neither power overflows.
  const double log2_sink = logit * std::numbers::log2e;
  const double top = log2_sink > row_max ? log2_sink : row_max;
  const double of_row = std::exp2(row_max - top);
  const double of_sink = std::exp2(log2_sink - top);
  const double total = row_sum * of_row + of_sink;
  const double lse = (top + std::log2(total)) * std::numbers::ln2;
  return {static_cast<float>(of_row / total), static_cast<float>(lse)};
}

}  // namespace fa4::internal
