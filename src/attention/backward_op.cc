#include "attention/backward_op.h"

#include "attention/cpu_backward_op.h"
#include "attention/gpu_backward_op.h"
#include "core/error.h"

namespace fa4::internal {

std::shared_ptr<const BackwardOp> prepare(const BackwardPlan& plan, std::shared_ptr<Device> device,
                                          void* stream) {
  if (std::holds_alternative<CpuBackwardSpec>(plan.main)) return prepare_cpu(plan);
  if (device == nullptr) {
    throw Error(ErrorCode::kDeviceUnavailable,
                "device " + plan.device.name + " is not open; accepted: the plan's device");
  }
  return prepare_gpu(plan, std::move(device), stream);
}

}  // namespace fa4::internal
