// The forward operation on the CPU.
#pragma once

#include <memory>

#include "attention/forward_op.h"

namespace fa4::internal {

// Starts the plan's threads, or shares those of a living operation. Throws Error{kOutOfMemory}.
std::shared_ptr<const ForwardOp> prepare_cpu(const ForwardPlan& plan);

}  // namespace fa4::internal
