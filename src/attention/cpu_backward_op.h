// The backward operation on the CPU.
#pragma once

#include <memory>

#include "attention/backward_op.h"

namespace fa4::internal {

// As prepare_cpu of a forward plan, with which it shares threads.
std::shared_ptr<const BackwardOp> prepare_cpu(const BackwardPlan& plan);

}  // namespace fa4::internal
