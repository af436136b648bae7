#include "attention/forward_op.h"

#include <fmt/format.h>

#include "attention/cpu_forward_op.h"
#include "attention/gpu_forward_op.h"
#include "core/error.h"

namespace fa4::internal {
ForwardArgs ForwardOp::with_planned_workspace(const ForwardArgs& args) const {
  ForwardArgs used = args;
  used.workspace_bytes = plan_.workspace.bytes();
  if (plan_.workspace.bytes() == 0) {
    used.workspace = nullptr;
    return used;
  }
  if (args.workspace == nullptr || args.workspace_bytes < plan_.workspace.bytes()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("workspace {} of workspace_bytes {}; accepted: at least {} bytes",
                            args.workspace, args.workspace_bytes, plan_.workspace.bytes()));
  }
  if (reinterpret_cast<uintptr_t>(args.workspace) % 256 != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("workspace {}; accepted: multiples of 256", args.workspace));
  }
  return used;
}

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
