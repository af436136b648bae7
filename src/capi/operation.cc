// The functions of fa4.h that execute, and those that do all steps in one call.
#include <fmt/format.h>

#include <new>

#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"

namespace internal = fa4::internal;

namespace {

using internal::Error;
using internal::ErrorCode;

constexpr std::align_val_t kAlignment{internal::kWorkspaceAlignment};

// Host memory for one execution.
class HostWorkspace {
 public:
  explicit HostWorkspace(size_t bytes)
      : data_(bytes == 0 ? nullptr : operator new(bytes, kAlignment)) {}
  ~HostWorkspace() { operator delete(data_, kAlignment); }
  HostWorkspace(const HostWorkspace&) = delete;
  HostWorkspace& operator=(const HostWorkspace&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

template <class Op>
const Op& op_of(const std::shared_ptr<const Op>& op, const char* planned_by) {
  if (op == nullptr) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("op is of the other direction; accepted: one prepared from a plan of {}",
                    planned_by));
  }
  return *op;
}

// Finds the operation of the problem, or makes it by `plan`, and executes it.
template <class Op, class Args, class Plan>
void run_in_one_call(const fa4_device& device, internal::PreparedOps<Op>& kept,
                     const fa4_problem* given_problem, const Args* given_args, const Plan& plan) {
  const fa4_problem problem = internal::read_problem(given_problem);
  auto args = internal::to_args(given_args);
  const std::shared_ptr<const Op> found = kept.find(problem);
  const std::shared_ptr<const Op> op =
      found != nullptr ? found
                       : internal::prepare(plan(internal::to_problem(problem), device.spec, {}),
                                           device.device, args.stream);
  const bool is_cpu = device.spec.kind == internal::DeviceKind::kCpu;
  const bool needs_workspace = is_cpu && args.workspace == nullptr;
  const HostWorkspace workspace(needs_workspace ? op->plan().workspace.bytes() : 0);
  if (needs_workspace) {
    args.workspace = workspace.data();
    args.workspace_bytes = op->plan().workspace.bytes();
  }
  if (found == nullptr) kept.keep(problem, op);
  op->execute(args);
}

}  // namespace

extern "C" {

fa4_status fa4_execute(const fa4_op* op, const fa4_forward_args* args) {
  return internal::guarded([&] {
    internal::require(op, "op");
    if (op->context_forward != nullptr) {
      return op->context_forward->execute(internal::to_args(args));
    }
    op_of(op->forward, "fa4_plan_forward").execute(internal::to_args(args));
  });
}

fa4_status fa4_execute_backward(const fa4_op* op, const fa4_backward_args* args) {
  return internal::guarded([&] {
    internal::require(op, "op");
    if (op->context_backward != nullptr) {
      return op->context_backward->execute(internal::to_args(args));
    }
    op_of(op->backward, "fa4_plan_backward").execute(internal::to_args(args));
  });
}

fa4_status fa4_forward(fa4_device* device, const fa4_problem* problem,
                       const fa4_forward_args* args) {
  return internal::guarded([&] {
    internal::require(device, "device");
    run_in_one_call(*device, device->forward_ops, problem, args, internal::plan_forward);
  });
}

fa4_status fa4_backward(fa4_device* device, const fa4_problem* problem,
                        const fa4_backward_args* args) {
  return internal::guarded([&] {
    internal::require(device, "device");
    run_in_one_call(*device, device->backward_ops, problem, args, internal::plan_backward);
  });
}

}  // extern "C"
