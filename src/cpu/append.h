// New keys and values into a cache, on cores.
#pragma once

#include "core/thread_pool.h"
#include "problem/append_args.h"

namespace fa4::internal {

// Arguments are those that checked() returned. Neither allocates nor throws.
void cpu_append(const AttentionProblem& problem, const AppendArgs& args, ThreadPool& pool);

}  // namespace fa4::internal
