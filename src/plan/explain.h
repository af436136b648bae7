// What plans of both directions say of themselves.
#pragma once

#include <string>
#include <vector>

#include "core/device_spec.h"
#include "core/logging.h"
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

// "what: choice (why)"
std::string line_of(const PlanStep& step);

// The problem, its mask and the device: where every chain of decisions begins.
void explain_problem(const AttentionProblem& problem, const DeviceSpec& device,
                     std::vector<PlanStep>* steps);
// The launches and the workspace: where it ends.
void explain_launches(const std::vector<KernelStep>& launches, const WorkspaceLayout& workspace,
                      std::vector<PlanStep>* steps);

// A message of level 2 for each decision of a plan, where somebody listens.
template <class Plan>
void log_decisions(const Plan& plan) {
  if (!is_logged(2)) return;
  for (const PlanStep& step : explain(plan)) {
    log(2, "plan: " + line_of(step));
  }
}

}  // namespace fa4::internal
