// The end of a row: what its running maximum and sum become, with the sink.
#pragma once

namespace fa4::internal {

struct RowEnd {
  float out_scale = 0;  // what the row's sums are multiplied by
  float lse = 0;        // natural logarithm
};

// `row_max` (of the scores times log2(e), possibly stale; -inf: none yet) and `row_sum`, the sum of
// 2^(score - row_max). `sees_keys`: the mask leaves the row at least one key. `sink`: NULL or the
// head's sink logit. A row that sees keys is NaN in both where its sum is, or where its maximum is
// not below kScoreLimitLog2 in magnitude (-inf: all its scores are) and its keys are not nothing
// beside the sink.
RowEnd finish_row(float row_max, float row_sum, bool sees_keys, const float* sink);

}  // namespace fa4::internal
