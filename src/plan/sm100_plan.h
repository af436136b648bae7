// Blackwell: which variant of its kernel runs a problem.
#pragma once

#include <vector>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

Sm100ForwardSpec plan_sm100(const AttentionProblem& problem, const DeviceSpec& device,
                            std::optional<TileSource> forced);

void explain_sm100(const ForwardPlan& plan, std::vector<PlanStep>* steps);

}  // namespace fa4::internal
