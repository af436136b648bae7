// The CPU backend's backward, the executable specification of the operation.
#pragma once

#include "core/thread_pool.h"
#include "plan/backward_plan.h"
#include "problem/backward_args.h"

namespace fa4::internal {

// Runs synchronously on `pool`. Arguments are those that check_host_args accepted; the workspace is
// laid out as cpu_backward_workspace says. Neither allocates nor throws; the result's bits depend
// on `spec.isa` and the tiles, never on the number of threads.
void cpu_backward(const AttentionProblem& problem, const CpuBackwardSpec& spec,
                  const BackwardArgs& args, ThreadPool& pool);

}  // namespace fa4::internal
