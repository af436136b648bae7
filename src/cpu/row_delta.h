// What the backward needs of each row before it looks at keys, and the gradient of the sinks.
#pragma once

#include "core/thread_pool.h"
#include "problem/backward_args.h"

namespace fa4::internal {

// rowsum(dout o out) - dlse of every row, laid out like lse.
void compute_row_delta(const AttentionProblem& problem, const BackwardArgs& args, double* delta,
                       ThreadPool& pool);

// dsink, when it is wanted: -sum exp(sink - lse) delta over batch and rows. A row whose lse is -inf
// adds nothing.
void compute_dsink(const AttentionProblem& problem, const BackwardArgs& args, const double* delta,
                   ThreadPool& pool);

}  // namespace fa4::internal
