#include "attention/backward_op.h"

#include "attention/cpu_backward_op.h"

namespace fa4::internal {

std::shared_ptr<const BackwardOp> prepare(const BackwardPlan& plan, std::shared_ptr<Device>,
                                          void*) {
  return prepare_cpu(plan);
}

}  // namespace fa4::internal
