// Attention in double precision, straight from its definition, and the accuracy rules of
// docs/api.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "problem/forward_args.h"

namespace fa4::internal {

struct Reference {
  std::vector<double> out;    // double-precision attention, indexed like a contiguous out
  std::vector<double> plain;  // attention in the inputs' type T: scores, normalised probabilities
                              // and out each rounded to T
  std::vector<double> lse;    // natural log; -inf for an empty row without a sink
};

// Host pointers; reads q, k, v, sink and the index tensors of `args`, nothing else. `threads` >= 1.
Reference reference_forward(const AttentionProblem& problem, const ForwardArgs& args, int threads);

struct Accuracy {
  double error =
      0;  // largest over the rules, as a share of its bound times `bound`: error <= bound passes
  double bound = 0;
  bool passed = true;
  std::string
      detail;  // the first mismatch: rule, element, coordinates (b, h, m, n), both values, ulp
};

// `out` is contiguous, of the problem's dtype; `plain` may be null for an outside truth: then
// computed bounds need it.
Accuracy check_out(const AttentionProblem& problem, const ForwardArgs& args,
                   const Reference& reference, const void* out);
Accuracy check_lse(const AttentionProblem& problem, const ForwardArgs& args,
                   const Reference& reference, const float* lse);

}  // namespace fa4::internal
