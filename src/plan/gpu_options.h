// Options of a problem that only the CPU has in this version.
#pragma once

#include "plan/explain.h"

namespace fa4::internal {

// Whether a GPU has all that `problem` asks for, but for what its own kernels say.
Support query_gpu_options(const AttentionProblem& problem);

}  // namespace fa4::internal
