// The driver of the tiled backward: packs, runs blocks in their order, finishes rows and keys.
#pragma once

#include "core/thread_pool.h"
#include "cpu/backward_job.h"
#include "plan/cpu_backward_spec.h"
#include "problem/backward_args.h"

namespace fa4::internal {

// dq, dk and dv, with the path's inner loop. `delta`: as compute_row_delta left it.
//
// A task is one block of keys of a head: it passes over the blocks of rows that see it, keeps the
// sums of dk and dv, and adds to those of dq, block of keys after block of keys: a task waits until
// the one before it in its head has added. Tasks are handed out in that order, so that what is
// waited for has begun, and no sum depends on the number of threads.
void tiled_backward(const AttentionProblem& problem, const CpuBackwardSpec& spec,
                    const BackwardArgs& args, const double* delta, ThreadPool& pool,
                    RunBackwardBlock run_block);

}  // namespace fa4::internal
