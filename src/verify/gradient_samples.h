// Single rows of the gradients in double precision, from a given out and lse: for problems whose
// whole oracle would take too long.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/backward_args.h"

namespace fa4::internal {

// Host pointers; dense. dq of query i, (head_dim).
std::vector<double> dq_of_row(const AttentionProblem& problem, const BackwardArgs& args, int64_t b,
                              int64_t h, int64_t i);

// dk and dv of key j.
struct KeyGradients {
  std::vector<double> dk, dv;
};
KeyGradients gradients_of_key(const AttentionProblem& problem, const BackwardArgs& args, int64_t b,
                              int64_t head, int64_t j);

// How far an element of such a row may be off: a share of the largest, by the type's precision. To
// find what is wrong, not what is inexact.
double gradient_bound(DType dtype, const std::vector<double>& row);

}  // namespace fa4::internal
