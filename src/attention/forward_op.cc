#include "attention/forward_op.h"

#include "attention/cpu_forward_op.h"
#include "attention/gpu_forward_op.h"
#include "core/error.h"

namespace fa4::internal {

std::shared_ptr<const ForwardOp> prepare(const ForwardPlan& plan, std::shared_ptr<Device> device,
                                         void* stream) {
  if (std::holds_alternative<CpuKernelSpec>(plan.main)) return prepare_cpu(plan);
  if (device == nullptr) {
    throw Error(ErrorCode::kDeviceUnavailable,
                "device " + plan.device.name + " is not open; accepted: the plan's device");
  }
  return prepare_gpu(plan, std::move(device), stream);
}

}  // namespace fa4::internal
