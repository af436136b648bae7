// The end of a row: its factor and its log-sum-exp, from the online softmax's sum and maximum.
#pragma once

#include "kernels/attention/exp2_math.h"
#include "kernels/attention/pack.cuh"

namespace fa4 {

struct FinishedRow {
  float factor;  // of the output; 0: the row saw nothing, whatever the output holds
  float lse;     // natural logarithm; -inf for a row that saw nothing
};

// `row_max` of unscaled scores, -inf when the row saw nothing; `sink_log2` is the sink logit times
// log2(e), or -inf.
__device__ inline FinishedRow finish_row(float row_sum, float row_max, float scale_log2,
                                         float sink_log2) {
  const float max_log2 = row_max == -kInfinity ? -kInfinity : row_max * scale_log2;
  const float top = fmaxf(max_log2, sink_log2);
  const float shrink = max_log2 == -kInfinity ? 0.0f : ptx::ex2_approx_ftz(max_log2 - top);
  const float total =
      row_sum * shrink + (sink_log2 == -kInfinity ? 0.0f : ptx::ex2_approx_ftz(sink_log2 - top));
  if (total == 0.0f) return {0.0f, -kInfinity};
  return {shrink * ptx::rcp_approx_ftz(total), (top + ptx::lg2_approx_ftz(total)) * kLn2};
}

}  // namespace fa4
