// The functions of fa4.h that plan and prepare, for both directions.
#include <algorithm>

#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"

namespace internal = fa4::internal;

namespace {

using internal::AttentionProblem;
using internal::Error;
using internal::ErrorCode;
using internal::PlanOptions;

PlanOptions to_options(const fa4_plan_options* given) {
  PlanOptions options;
  if (given == nullptr) return options;
  const auto read = internal::read_struct(given, "options", "fa4_plan_options");
  options.num_threads = internal::to_num_threads(read.num_threads);
  return options;
}

void refuse_unsupported(const internal::Support& support) {
  if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
}

// `make`: plan_forward or plan_backward.
template <class Make>
void make_plan(const fa4_device* device, const fa4_problem* problem,
               const fa4_plan_options* options, fa4_plan** plan, const Make& make) {
  internal::require(device, "device");
  internal::require(plan, "plan");
  const AttentionProblem wanted = internal::to_problem(internal::read_problem(problem));
  const PlanOptions plan_options = to_options(options);
  auto handle = std::make_unique<fa4_plan>();
  auto made = make(wanted, device->spec, plan_options);
  handle->kernel_name = internal::kernel_name(made);
  handle->plan = std::move(made);
  handle->device = device->device;
  *plan = handle.release();
}

void prepare_into(fa4_op& op, const internal::ForwardPlan& plan, const fa4_plan& handle) {
  op.forward = internal::prepare(plan, handle.device);
}
void prepare_into(fa4_op& op, const internal::BackwardPlan& plan, const fa4_plan& handle) {
  op.backward = internal::prepare(plan, handle.device);
}
void prepare_into(fa4_op& op, const internal::ContextForwardPlan& plan, const fa4_plan& handle) {
  op.context_forward = std::make_shared<internal::ContextForwardOp>(plan, handle.device);
}
void prepare_into(fa4_op& op, const internal::ContextBackwardPlan& plan, const fa4_plan& handle) {
  op.context_backward = std::make_shared<internal::ContextBackwardOp>(plan, handle.device);
}

}  // namespace

extern "C" {

fa4_status fa4_query_support(const fa4_device* device, const fa4_problem* problem) {
  return internal::guarded([&] {
    internal::require(device, "device");
    refuse_unsupported(internal::query_support(
        internal::to_problem(internal::read_problem(problem)), device->spec));
  });
}

fa4_status fa4_query_backward_support(const fa4_device* device, const fa4_problem* problem) {
  return internal::guarded([&] {
    internal::require(device, "device");
    refuse_unsupported(internal::query_backward_support(
        internal::to_problem(internal::read_problem(problem)), device->spec));
  });
}

fa4_status fa4_plan_forward(const fa4_device* device, const fa4_problem* problem,
                            const fa4_plan_options* options, fa4_plan** plan) {
  return internal::guarded(
      [&] { make_plan(device, problem, options, plan, internal::plan_forward); });
}

fa4_status fa4_plan_backward(const fa4_device* device, const fa4_problem* problem,
                             const fa4_plan_options* options, fa4_plan** plan) {
  return internal::guarded(
      [&] { make_plan(device, problem, options, plan, internal::plan_backward); });
}

void fa4_destroy_plan(fa4_plan* plan) { delete plan; }

size_t fa4_plan_workspace_bytes(const fa4_plan* plan) {
  if (plan == nullptr) return 0;
  return std::visit([](const auto& made) { return made.workspace.bytes(); }, plan->plan);
}

const char* fa4_plan_kernel_name(const fa4_plan* plan) {
  return plan == nullptr ? "" : plan->kernel_name.c_str();
}

fa4_status fa4_plan_describe(const fa4_plan* plan, char* text, size_t capacity, size_t* length) {
  return internal::guarded([&] {
    internal::require(plan, "plan");
    if (capacity > 0) internal::require(text, "text");
    std::string lines;
    const std::vector<internal::PlanStep> steps =
        std::visit([](const auto& made) { return internal::explain(made); }, plan->plan);
    for (const internal::PlanStep& step : steps) lines += internal::line_of(step) + "\n";
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
    std::visit([&](const auto& made) { prepare_into(*handle, made, *plan); }, plan->plan);
    *op = handle.release();
  });
}

void fa4_destroy_op(fa4_op* op) { delete op; }

}  // extern "C"
