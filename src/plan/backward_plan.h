// How a backward problem will be run on a device: a pure function of values, made in microseconds.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "core/device_spec.h"
#include "plan/cpu_backward_spec.h"
#include "plan/explain.h"
#include "plan/forward_plan.h"
#include "plan/sm100_backward_plan.h"
#include "plan/sm90_backward_plan.h"
#include "plan/steps.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// The kernel that does the work, in its variant.
using BackwardSpec = std::variant<CpuBackwardSpec, Sm90BackwardSpec, Sm100BackwardSpec>;

struct BackwardPlan {
  AttentionProblem problem;
  DeviceSpec device;
  BackwardSpec main;
  std::vector<KernelStep> steps;  // that a GPU launches, in their order; none on the CPU
  WorkspaceLayout workspace;
};

// Whether `device` runs the backward of `problem`, and the reason when it does not. Throws
// Error{kInvalidArgument} for gradients that are too large.
Support query_backward_support(const AttentionProblem& problem, const DeviceSpec& device);

// Throws Error{kNotSupported} with query_backward_support's reason.
BackwardPlan plan_backward(const AttentionProblem& problem, const DeviceSpec& device,
                           const PlanOptions& options = {});

// The plan that runs `problem` as `main` says: steps and workspace follow from it.
BackwardPlan plan_backward_with(const AttentionProblem& problem, const DeviceSpec& device,
                                const BackwardSpec& main);

// What a GPU's main kernel is like, and the order of its work; nothing on the CPU.
struct BackwardTiling {
  BackwardShape shape;
  BwdOrder order;
};
std::optional<BackwardTiling> backward_tiling(const BackwardPlan& plan);

// The main kernel's name to users: "cpu_backward_avx512", "bwd_sm90_bf16_d128".
std::string kernel_name(const BackwardPlan& plan);

// The chain of decisions, for `fa4 plan`.
std::vector<PlanStep> explain(const BackwardPlan& plan);

}  // namespace fa4::internal
