#include "plan/forward_plan.h"

#include <fmt/format.h>

#include "plan/cpu_kernel_spec.h"
#include "plan/gpu_plan.h"
#include "plan/sm100_plan.h"
#include "plan/sm100_tuning.h"
#include "plan/sm90_plan.h"

namespace fa4::internal {
namespace {

void explain_cpu(const ForwardPlan& plan, std::vector<PlanStep>* steps) {
  const auto& spec = std::get<CpuKernelSpec>(plan.main);
  steps->push_back({"kernel", fmt::format("cpu {}", name_of(spec.isa)),
                    fmt::format("the best path for {} that this device has and FA4_CPU_ISA allows",
                                name_of(plan.problem.dtype))});
  steps->push_back({"tile", fmt::format("{} rows x {} keys", spec.tile_m, spec.tile_n),
                    "scores and packed operands stay in the first two caches"});
  steps->push_back(
      {"threads", fmt::format("{}", spec.num_threads), "the result's bits do not depend on it"});
}

std::string describe(const AttentionProblem& p) {
  static constexpr const char* kLayouts[] = {"dense", "packed", "paged"};
  return fmt::format("{} q {}x{}x{}x{} ({}), k {}x{}x{} ({}), v head_dim {}", name_of(p.dtype),
                     p.batch, p.seqlen_q, p.heads_q, p.head_dim,
                     kLayouts[static_cast<int>(p.layout_q)], p.seqlen_k, p.heads_kv, p.head_dim,
                     kLayouts[static_cast<int>(p.layout_kv)], p.head_dim_v);
}

std::string describe(const MaskSpec& mask) {
  if (mask.is_full()) return "full";
  if (mask == MaskSpec{-1, 0}) return "causal";
  return fmt::format("window ({}, {})", mask.window_left, mask.window_right);
}

}  // namespace

Support query_support(const AttentionProblem& problem, const DeviceSpec& device) {
  if (device.kind == DeviceKind::kCpu) return {};
  const bool blackwell = is_sm100(device.architecture);
  if (!blackwell && device.architecture != "sm_90a") {
    return {false, fmt::format("architecture {} of device {}; accepted in this version: sm_90a, "
                               "sm_100a, sm_103a",
                               device.architecture, device.name)};
  }
  const Support support = query_gpu_support(problem);
  return support.supported && blackwell ? query_sm100_support(problem) : support;
}

ForwardPlan plan_forward(const AttentionProblem& problem, const DeviceSpec& device,
                         const PlanOptions& options) {
  const Support support = query_support(problem, device);
  if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
  ForwardPlan plan{.problem = problem, .device = device, .main = {}, .workspace_bytes = 0};
  if (device.kind == DeviceKind::kCpu) {
    const CpuKernelSpec spec = plan_cpu(problem, device, options.num_threads);
    plan.workspace_bytes = cpu_workspace_bytes(problem, spec);
    plan.main = spec;
    return plan;
  }
  const auto choose = [&](const auto& spec) {
    plan.workspace_bytes = gpu_workspace_bytes(spec.schedule);
    plan.main = spec;
  };
  if (is_sm100(device.architecture)) {
    choose(plan_sm100(problem, device, options.tile_source));
  } else {
    choose(plan_sm90(problem, device, options.tile_source));
  }
  return plan;
}

std::optional<GpuLaunch> gpu_launch(const ForwardPlan& plan) {
  const auto launch = [](const auto& spec) {
    return GpuLaunch{spec.source(), spec.schedule, spec.shape()};
  };
  if (const auto* spec = std::get_if<Sm90ForwardSpec>(&plan.main)) return launch(*spec);
  if (const auto* spec = std::get_if<Sm100ForwardSpec>(&plan.main)) return launch(*spec);
  return std::nullopt;
}

std::vector<PlanStep> explain(const ForwardPlan& plan) {
  const AttentionProblem& p = plan.problem;
  std::vector<PlanStep> steps;
  steps.push_back({"problem", describe(p), "validated; defaults filled in"});
  steps.push_back(
      {"mask", describe(p.mask),
       fmt::format("{} of {} (query, key) pairs of the longest sequence are visible",
                   visible_pairs(p.seqlen_q, p.seqlen_k, p.mask), p.seqlen_q * p.seqlen_k)});
  steps.push_back({"device", plan.device.name,
                   fmt::format("{}, {}", plan.device.model, plan.device.architecture)});
  if (std::holds_alternative<CpuKernelSpec>(plan.main)) {
    explain_cpu(plan, &steps);
  } else if (std::holds_alternative<Sm100ForwardSpec>(plan.main)) {
    explain_sm100(plan, &steps);
  } else {
    explain_sm90(plan, &steps);
  }
  steps.push_back({"workspace", fmt::format("{} bytes", plan.workspace_bytes),
                   "the caller's, 256-byte aligned, contents undefined before and after"});
  return steps;
}

}  // namespace fa4::internal
