// Partial results of attention put together on cores.
#pragma once

#include "core/thread_pool.h"
#include "problem/merge_args.h"

namespace fa4::internal {

// Arguments are those that checked() returned. Neither allocates nor throws; the bits do not depend
// on the number of threads.
void cpu_merge(const MergeArgs& args, ThreadPool& pool);

}  // namespace fa4::internal
