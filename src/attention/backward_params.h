// The one parameter of the backward's kernels, filled from a plan and one execution's arguments.
#pragma once

#include "kernels/backward/params.h"
#include "plan/backward_plan.h"
#include "problem/backward_args.h"

namespace fa4::internal {

// Everything but the tensor maps, which a device encodes, and the workspace.
BwdParams backward_params(const AttentionProblem& problem, const BackwardTiling& tiling,
                          const BackwardArgs& args);

}  // namespace fa4::internal
