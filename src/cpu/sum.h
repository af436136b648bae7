// Sums of f32 matrices on cores.
#pragma once

#include "core/thread_pool.h"
#include "problem/sum_args.h"

namespace fa4::internal {

// Neither allocates nor throws; the bits do not depend on the number of threads.
void cpu_sum(const SumArgs& args, ThreadPool& pool);

}  // namespace fa4::internal
