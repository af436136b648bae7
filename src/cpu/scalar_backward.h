// The backward in plain C++: the executable specification, on any machine.
#pragma once

#include "core/thread_pool.h"
#include "plan/cpu_backward_spec.h"
#include "problem/backward_args.h"

namespace fa4::internal {

// dq, dk and dv. `delta`: as compute_row_delta left it.
void scalar_backward(const AttentionProblem& problem, const CpuBackwardSpec& spec,
                     const BackwardArgs& args, const double* delta, ThreadPool& pool);

}  // namespace fa4::internal
