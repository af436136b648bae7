// The backward operation on a GPU: Hopper, Blackwell, or an emulated one.
#pragma once

#include <memory>

#include "attention/backward_op.h"

namespace fa4::internal {

// As prepare(), for a plan of `device`.
std::shared_ptr<const BackwardOp> prepare_gpu(const BackwardPlan& plan,
                                              std::shared_ptr<Device> device, void* stream);

}  // namespace fa4::internal
