// The end of a row: its factor and its log-sum-exp, from the online softmax's sum and maximum.
#pragma once

#include "kernels/softmax/exp2_math.h"
#include "kernels/tile/pack.cuh"

namespace fa4 {

// The weight of a part whose weights are relative to its own maximum; of one that saw nothing: 0.
__device__ inline float weight_of(float max_log2, float top_log2) {
  return max_log2 == -kInfinity ? 0.0f : ptx::ex2_approx_ftz(max_log2 - top_log2);
}

struct FinishedRow {
  float factor;  // of the output; 0: the output is 0, whatever the sums of the row hold
  float lse;     // natural logarithm; -inf for a row that saw nothing
};

// `max_log2` is the maximum of the scaled scores times log2(e), to which `row_sum` is relative, of
// a row that sees keys; `sink` is the head's sink logit, or -inf. In natural units, since a sink
// may be any float and its product with log2(e) would overflow.
__device__ inline FinishedRow finish_row(float row_sum, float max_log2, bool sees_keys,
                                         float sink) {
  const float row_max = max_log2 * kLn2;
  const float top = fmaxf(row_max, sink);
  const float of_row = ptx::ex2_approx_ftz((row_max - top) * kLog2E);
  const float of_sink = ptx::ex2_approx_ftz((sink - top) * kLog2E);
  const float total = fmaf(row_sum, of_row, of_sink);
  const FinishedRow row = {of_row * ptx::rcp_approx_ftz(total),
                           fmaf(ptx::lg2_approx_ftz(total), kLn2, top)};
  // Chosen at the end, without a branch: this lies between a tile's last product and its stores.
  const bool is_nothing = !sees_keys | is_nothing_beside(max_log2, sink);
  const bool is_nan = !(fabsf(max_log2) < kScoreLimitLog2);
  return {is_nothing ? 0.0f
          : is_nan   ? kNaN
                     : row.factor,
          is_nothing ? sink
          : is_nan   ? kNaN
                     : row.lse};
}

}  // namespace fa4
