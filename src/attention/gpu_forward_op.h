// The forward operation on a GPU: Hopper, Blackwell, or an emulated one.
#pragma once

#include <memory>

#include "attention/forward_op.h"

namespace fa4::internal {

// Loads the plan's kernel on `device`. Throws Error{kCompiler, kDriver}.
std::shared_ptr<const ForwardOp> prepare_gpu(const ForwardPlan& plan,
                                             std::shared_ptr<Device> device);

}  // namespace fa4::internal
