// The forward pass in plain C++: the executable specification, on any machine.
#pragma once

#include "core/thread_pool.h"
#include "plan/cpu_kernel_spec.h"
#include "problem/forward_args.h"

namespace fa4::internal {

// As cpu_forward; needs no workspace.
void scalar_forward(const AttentionProblem& problem, const CpuKernelSpec& spec,
                    const ForwardArgs& args, ThreadPool& pool);

}  // namespace fa4::internal
