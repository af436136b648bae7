// The CPU backend: FlashAttention-4's forward on cores, and the executable specification of the
// operation.
#pragma once

#include "core/thread_pool.h"
#include "plan/cpu_kernel_spec.h"
#include "problem/forward_args.h"

namespace fa4::internal {

// Runs synchronously on `pool`. Arguments are those that check_host_args accepted; the workspace
// holds at least cpu_workspace_bytes. Neither allocates nor throws; the result's bits depend on
// `spec.isa` and the tiles, never on the number of threads.
void cpu_forward(const AttentionProblem& problem, const CpuKernelSpec& spec,
                 const ForwardArgs& args, ThreadPool& pool);

}  // namespace fa4::internal
