// Blackwell: whether its kernel takes a problem, and which variant runs it.
#pragma once

#include <vector>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

// What the kernel adds to query_gpu_support.
Support query_sm100_support(const AttentionProblem& problem);

// For a problem that both take.
Sm100ForwardSpec plan_sm100(const AttentionProblem& problem, const DeviceSpec& device,
                            std::optional<TileSource> forced);

void explain_sm100(const ForwardPlan& plan, std::vector<PlanStep>* steps);

}  // namespace fa4::internal
