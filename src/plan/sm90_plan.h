// Hopper: whether the kernel takes a problem, and how it is launched.
#pragma once

#include <vector>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

Support query_sm90_support(const AttentionProblem& problem);

// For a supported problem.
Sm90ForwardSpec plan_sm90(const AttentionProblem& problem, const DeviceSpec& device);

// Bytes of a launch's tile counter.
size_t sm90_workspace_bytes(const Sm90ForwardSpec& spec);

void explain_sm90(const ForwardPlan& plan, std::vector<PlanStep>* steps);

}  // namespace fa4::internal
