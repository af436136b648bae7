// The functions of fa4.h about the forward operation.
#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"

namespace internal = fa4::internal;

namespace {

using internal::AttentionProblem;
using internal::CpuKernelSpec;
using internal::Error;
using internal::ErrorCode;
using internal::ForwardArgs;
using internal::ForwardOp;
using internal::ForwardPlan;
using internal::PlanOptions;

constexpr size_t kPreparedOps = 64;
constexpr std::align_val_t kWorkspaceAlignment{256};

std::string kernel_name(const ForwardPlan& plan) {
  if (const auto* cpu = std::get_if<CpuKernelSpec>(&plan.main)) {
    return "cpu_" + std::string(name_of(cpu->isa));
  }
  return plan.steps.front().source.display_name;
}

PlanOptions to_options(const fa4_plan_options* given) {
  PlanOptions options;
  if (given == nullptr) return options;
  options.num_threads = internal::read_struct(given, "options", "fa4_plan_options").num_threads;
  if (options.num_threads < 0 || options.num_threads > 4096) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("num_threads {}; accepted: 0 to 4096", options.num_threads));
  }
  return options;
}

// Problems are compared byte by byte.
static_assert(sizeof(fa4_problem) == 272, "fa4_problem has padding");

// The device's operation for `problem`, moved to the front of those it keeps; null when it has
// none.
std::shared_ptr<const ForwardOp> find_prepared(fa4_device& device, const fa4_problem& problem) {
  const std::lock_guard lock(device.mutex);
  const auto found =
      std::find_if(device.prepared.begin(), device.prepared.end(), [&](const auto& entry) {
        return std::memcmp(&entry.problem, &problem, sizeof(problem)) == 0;
      });
  if (found == device.prepared.end()) return nullptr;
  std::rotate(device.prepared.begin(), found, found + 1);
  return device.prepared.front().op;
}

std::shared_ptr<const ForwardOp> prepare_now(const fa4_device& device, const fa4_problem& problem,
                                             void* stream) {
  const ForwardPlan plan =
      internal::plan_forward(internal::to_problem(problem), device.spec, PlanOptions{});
  return internal::prepare(plan, device.device, stream);
}

void keep_prepared(fa4_device& device, const fa4_problem& problem,
                   const std::shared_ptr<const ForwardOp>& op) {
  const std::lock_guard lock(device.mutex);
  device.prepared.reserve(kPreparedOps + 1);
  device.prepared.insert(device.prepared.begin(), {problem, op});
  if (device.prepared.size() > kPreparedOps) device.prepared.pop_back();
}

// Host memory for one execution.
class HostWorkspace {
 public:
  explicit HostWorkspace(size_t bytes)
      : data_(bytes == 0 ? nullptr : operator new(bytes, kWorkspaceAlignment)) {}
  ~HostWorkspace() { operator delete(data_, kWorkspaceAlignment); }
  HostWorkspace(const HostWorkspace&) = delete;
  HostWorkspace& operator=(const HostWorkspace&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

}  // namespace

extern "C" {

fa4_status fa4_query_support(const fa4_device* device, const fa4_problem* problem) {
  return internal::guarded([&] {
    internal::require(device, "device");
    const internal::Support support = internal::query_support(
        internal::to_problem(internal::read_problem(problem)), device->spec);
    if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
  });
}

fa4_status fa4_plan_forward(const fa4_device* device, const fa4_problem* problem,
                            const fa4_plan_options* options, fa4_plan** plan) {
  return internal::guarded([&] {
    internal::require(device, "device");
    internal::require(plan, "plan");
    const AttentionProblem wanted = internal::to_problem(internal::read_problem(problem));
    const PlanOptions plan_options = to_options(options);
    auto handle = std::make_unique<fa4_plan>();
    handle->plan = internal::plan_forward(wanted, device->spec, plan_options);
    handle->device = device->device;
    handle->kernel_name = kernel_name(handle->plan);
    *plan = handle.release();
  });
}

void fa4_destroy_plan(fa4_plan* plan) { delete plan; }

size_t fa4_plan_workspace_bytes(const fa4_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace.bytes();
}

const char* fa4_plan_kernel_name(const fa4_plan* plan) {
  return plan == nullptr ? "" : plan->kernel_name.c_str();
}

fa4_status fa4_plan_describe(const fa4_plan* plan, char* text, size_t capacity, size_t* length) {
  return internal::guarded([&] {
    internal::require(plan, "plan");
    if (capacity > 0) internal::require(text, "text");
    std::string lines;
    for (const internal::PlanStep& step : internal::explain(plan->plan)) {
      lines += fmt::format("{}: {} ({})\n", step.what, step.choice, step.why);
    }
    if (capacity > 0) {
      const size_t copied = std::min(lines.size(), capacity - 1);
      std::memcpy(text, lines.data(), copied);
      text[copied] = '\0';
    }
    if (length != nullptr) *length = lines.size();
  });
}

fa4_status fa4_prepare(const fa4_plan* plan, fa4_op** op) {
  return internal::guarded([&] {
    internal::require(plan, "plan");
    internal::require(op, "op");
    auto handle = std::make_unique<fa4_op>();
    handle->op = internal::prepare(plan->plan, plan->device);
    *op = handle.release();
  });
}

void fa4_destroy_op(fa4_op* op) { delete op; }

fa4_status fa4_execute(const fa4_op* op, const fa4_forward_args* args) {
  return internal::guarded([&] {
    internal::require(op, "op");
    op->op->execute(internal::to_args(args));
  });
}

fa4_status fa4_forward(fa4_device* device, const fa4_problem* problem,
                       const fa4_forward_args* args) {
  return internal::guarded([&] {
    internal::require(device, "device");
    const fa4_problem wanted = internal::read_problem(problem);
    ForwardArgs forward_args = internal::to_args(args);
    const std::shared_ptr<const ForwardOp> kept = find_prepared(*device, wanted);
    const std::shared_ptr<const ForwardOp> op =
        kept != nullptr ? kept : prepare_now(*device, wanted, forward_args.stream);
    const bool is_cpu = device->spec.kind == internal::DeviceKind::kCpu;
    const bool needs_workspace = is_cpu && forward_args.workspace == nullptr;
    const HostWorkspace workspace(needs_workspace ? op->plan().workspace.bytes() : 0);
    if (needs_workspace) {
      forward_args.workspace = workspace.data();
      forward_args.workspace_bytes = op->plan().workspace.bytes();
    }
    if (kept == nullptr) keep_prepared(*device, wanted, op);
    op->execute(forward_args);
  });
}

}  // extern "C"
