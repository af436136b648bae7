// Hopper: which variant of its kernel a problem runs on.
#pragma once

#include <vector>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

// For a problem that query_gpu_support takes: every head dimension has a kernel.
Sm90ForwardSpec plan_sm90(const AttentionProblem& problem, const DeviceSpec& device,
                          std::optional<TileSource> forced);

// Whether whole tiles of few rows take the shape of parts: as many bytes under way, and no rows
// that nobody asks for.
bool has_shape_of_parts(const AttentionProblem& problem);

void explain_sm90(const ForwardPlan& plan, std::vector<PlanStep>* steps);

}  // namespace fa4::internal
