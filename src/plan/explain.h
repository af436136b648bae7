// What plans of both directions say of themselves.
#pragma once

#include <string>
#include <vector>

#include "core/device_spec.h"
#include "plan/steps.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

struct Support {
  bool supported = true;
  std::string reason;  // when not: argument, value, what is accepted
};

struct PlanStep {
  std::string what;
  std::string choice;
  std::string why;
};

// The problem, its mask and the device: where every chain of decisions begins.
void explain_problem(const AttentionProblem& problem, const DeviceSpec& device,
                     std::vector<PlanStep>* steps);
// The launches and the workspace: where it ends.
void explain_launches(const std::vector<KernelStep>& launches, const WorkspaceLayout& workspace,
                      std::vector<PlanStep>* steps);

}  // namespace fa4::internal
