// The forward operation on a Hopper GPU.
#pragma once

#include <memory>

#include "attention/forward_op.h"

namespace fa4::internal {

// Loads the plan's kernel on `device`. Throws Error{kCompiler, kDriver}.
std::shared_ptr<const ForwardOp> prepare_sm90(const ForwardPlan& plan,
                                              std::shared_ptr<Device> device);

}  // namespace fa4::internal
