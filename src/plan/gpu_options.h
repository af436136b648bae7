// Options of a problem that only the CPU has in this version.
#pragma once

#include "plan/explain.h"

namespace fa4::internal {

// Whether a GPU has all that `problem` asks for, but for what its own kernels say.
Support query_gpu_options(const AttentionProblem& problem);

// Where out is of the inputs' type alone: whether it is. `where`: "on a Blackwell GPU".
Support query_out_dtype(const AttentionProblem& problem, const char* where);

// Where a forward's keys are not cut into parts: whether it asks for none.
Support query_no_splits(const AttentionProblem& problem);

}  // namespace fa4::internal
