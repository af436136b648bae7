// The accuracy rules of docs/cli.md: how far a result may be from the truth.
#pragma once

#include <cstdint>
#include <string>

#include "verify/backward_oracle.h"
#include "verify/oracle.h"

namespace fa4::internal {

struct Accuracy {
  double error = 0;  // largest absolute difference (lse: of the element nearest its bound)
  double bound = 0;
  double rms_error = 0;  // of the block of 128 rows nearest its bound; 16-bit inputs only
  double rms_bound = 0;
  bool passed = true;
  std::string detail;  // when not passed: the rule, and the first element that breaks it
};

// out: T of 16 bits: max|out - ref| <= 2 max|pt - ref| + ulp with ulp = 2 max|T(T(ref + 0.3) - 0.3)
// - ref|, and for every (batch, head, block of 128 rows) RMS(out - ref) <= 2 RMS(pt - ref) + u
// RMS(ref), u = 2^-9 for bf16, 2^-12 for f16. f32: max|out - ref| <= 2 max|pt - ref| + 2^-21
// max|v|. An f32 out of 16-bit inputs may in any case be u max|ref| off. Where ref is not finite,
// out must be the same NaN or infinity. Rows that belong to no sequence count for nothing.
//
// `out` has the problem's out_dtype and strides; `tile_m` is only printed.
Accuracy check_out(const AttentionProblem& problem, const ForwardArgs& args,
                   const Reference& reference, const void* out, int tile_m = 128);

// lse: |difference| <= 1e-5 max(1, |ref|) + `exp_error`, the largest relative error of the
// exponential in use.
Accuracy check_lse(const AttentionProblem& problem, const ForwardArgs& args,
                   const Reference& reference, const float* lse, double exp_error);

struct BackwardAccuracy {
  Accuracy dq, dk, dv, dsink;
  bool passed() const { return dq.passed && dk.passed && dv.passed && dsink.passed; }
  // Describes the first check that has not passed.
  std::string detail() const;
};

// The gradients that `args` points to, those that are wanted. T of 16 bits: the rules of check_out,
// with blocks of 128 rows of queries for dq and of keys for dk and dv. f32: max|g - ref| <=
// 2 max|pt - ref| + 2^-20 max|ref|. dsink: |g - ref| <= 2 |pt - ref| + 2^-10 (1 + |ref|).
BackwardAccuracy check_backward(const AttentionProblem& problem, const BackwardArgs& args,
                                const BackwardReference& reference, int tile_m = 128);

// The first rule of check_out on the rows that reference_rows made; `out` holds the same rows, one
// behind the other.
Accuracy check_rows(const AttentionProblem& problem, const Reference& rows, const void* out);

}  // namespace fa4::internal
