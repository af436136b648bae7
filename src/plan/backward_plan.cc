#include "plan/backward_plan.h"

#include <fmt/format.h>

#include "core/error.h"

namespace fa4::internal {

Support query_backward_support(const AttentionProblem& problem, const DeviceSpec& device) {
  if (problem.layout_kv == Layout::kPaged) {
    return {false, "layout_kv paged; accepted for the backward: dense, packed"};
  }
  if (device.kind == DeviceKind::kCpu) return {};
  return {false,
          fmt::format("device {} has no backward in this version; accepted: cpu", device.name)};
}

BackwardPlan plan_backward(const AttentionProblem& problem, const DeviceSpec& device,
                           const PlanOptions& options) {
  const Support support = query_backward_support(problem, device);
  if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
  return plan_backward_with(problem, device,
                            plan_cpu_backward(problem, device, options.num_threads));
}

BackwardPlan plan_backward_with(const AttentionProblem& problem, const DeviceSpec& device,
                                const BackwardSpec& main) {
  BackwardPlan plan{
      .problem = problem, .device = device, .main = main, .steps = {}, .workspace = {}};
  if (const auto* cpu = std::get_if<CpuBackwardSpec>(&main)) {
    plan.workspace = cpu_backward_workspace(problem, *cpu);
  }
  return plan;
}

std::vector<PlanStep> explain(const BackwardPlan& plan) {
  std::vector<PlanStep> steps;
  explain_problem(plan.problem, plan.device, &steps);
  if (const auto* cpu = std::get_if<CpuBackwardSpec>(&plan.main)) {
    steps.push_back({"kernel", fmt::format("cpu {}", name_of(cpu->isa)),
                     fmt::format("the best path for {} that this device has and FA4_CPU_ISA allows",
                                 name_of(plan.problem.dtype))});
    steps.push_back({"tile", fmt::format("{} rows x {} keys", cpu->tile_m, cpu->tile_n),
                     "scores and packed operands stay in the first two caches"});
    steps.push_back(
        {"threads", fmt::format("{}", cpu->num_threads), "the result's bits do not depend on it"});
  }
  explain_launches(plan.steps, plan.workspace, &steps);
  return steps;
}

}  // namespace fa4::internal
