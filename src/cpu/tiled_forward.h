// The driver of all tiled paths: cuts the problem into tiles, packs, runs them, finishes rows.
#pragma once

#include "core/thread_pool.h"
#include "cpu/tile_job.h"
#include "plan/cpu_kernel_spec.h"
#include "problem/forward_args.h"

namespace fa4::internal {

// As cpu_forward, with the path's inner loop.
void tiled_forward(const AttentionProblem& problem, const CpuKernelSpec& spec,
                   const ForwardArgs& args, ThreadPool& pool, RunTile run_tile);

}  // namespace fa4::internal
