#include "plan/backward_plan.h"

#include <fmt/format.h>

#include "core/error.h"
#include "plan/sm100_tuning.h"

namespace fa4::internal {

Support query_backward_support(const AttentionProblem& problem, const DeviceSpec& device) {
  check_gradients(problem);
  if (problem.layout_kv == Layout::kPaged) {
    return {false, "layout_kv paged; accepted for the backward: dense, packed"};
  }
  if (problem.is_quantised()) {
    return {false, fmt::format("kv_dtype {}; accepted for the backward: {} (that of q), as no "
                               "gradient goes to a quantised cache",
                               name_of(problem.kv_dtype), name_of(problem.dtype))};
  }
  if (device.kind == DeviceKind::kCpu) return {};
  if (problem.out_dtype != problem.dtype) {
    return {false, fmt::format(
                       "out_dtype {}; accepted by a GPU's backward in this version: {} (that of q)",
                       name_of(problem.out_dtype), name_of(problem.dtype))};
  }
  if (device.architecture == "sm_90a") return query_sm90_backward_support(problem);
  if (is_sm100(device.architecture)) return query_sm100_backward_support(problem);
  return {false, fmt::format("architecture {} of device {} has no backward in this version; "
                             "accepted: a CPU, sm_90a, sm_100a, sm_103a",
                             device.architecture, device.name)};
}

BackwardPlan plan_backward(const AttentionProblem& problem, const DeviceSpec& device,
                           const PlanOptions& options) {
  const Support support = query_backward_support(problem, device);
  if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
  if (is_sm100(device.architecture)) {
    return plan_backward_with(problem, device, plan_sm100_backward(problem, device));
  }
  if (device.kind != DeviceKind::kCpu) {
    return plan_backward_with(problem, device, plan_sm90_backward(problem, device));
  }
  return plan_backward_with(problem, device,
                            plan_cpu_backward(problem, device, options.num_threads));
}

BackwardPlan plan_backward_with(const AttentionProblem& problem, const DeviceSpec& device,
                                const BackwardSpec& main) {
  BackwardPlan plan{
      .problem = problem, .device = device, .main = main, .steps = {}, .workspace = {}};
  if (const auto* cpu = std::get_if<CpuBackwardSpec>(&main)) {
    plan.workspace = cpu_backward_workspace(problem, *cpu);
  } else {
    const BackwardTiling tiling = *backward_tiling(plan);
    plan.steps = gpu_backward_steps(problem, tiling.shape);
    plan.workspace = gpu_backward_workspace(problem, tiling.shape, tiling.order);
  }
  log_decisions(plan);
  return plan;
}

std::optional<BackwardTiling> backward_tiling(const BackwardPlan& plan) {
  if (const auto* sm90 = std::get_if<Sm90BackwardSpec>(&plan.main)) {
    return BackwardTiling{sm90->shape(), sm90->order};
  }
  if (const auto* sm100 = std::get_if<Sm100BackwardSpec>(&plan.main)) {
    return BackwardTiling{sm100->shape(), sm100->order};
  }
  return std::nullopt;
}

std::string kernel_name(const BackwardPlan& plan) {
  if (const auto* cpu = std::get_if<CpuBackwardSpec>(&plan.main)) {
    return fmt::format("cpu_backward_{}", name_of(cpu->isa));
  }
  return plan.steps[kBackward].source.display_name;
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
  } else if (const auto* sm90 = std::get_if<Sm90BackwardSpec>(&plan.main)) {
    explain_sm90_backward(plan.problem, *sm90, &steps);
  } else if (const auto* sm100 = std::get_if<Sm100BackwardSpec>(&plan.main)) {
    explain_sm100_backward(plan.problem, *sm100, &steps);
  }
  explain_launches(plan.steps, plan.workspace, &steps);
  return steps;
}

}  // namespace fa4::internal
