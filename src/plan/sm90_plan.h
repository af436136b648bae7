// Hopper: which variant of its kernel a problem runs on.
#pragma once

#include <vector>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

// For a problem that query_gpu_support takes: every head dimension has a kernel.
Sm90ForwardSpec plan_sm90(const AttentionProblem& problem, const DeviceSpec& device,
                          std::optional<TileSource> forced);

// Whether this kernel is the one for the problem's keys of bytes, whose loaders make 16 bits of
// them once for many rows: contiguous or in pages of multiples of 8 keys, of at most 128 columns,
// with one descale for all of a sequence's head, and an out of q's type. The kernel of few rows
// (e4m3_plan.h) takes all that is left.
bool takes_bytes(const AttentionProblem& problem, const DeviceSpec& device);

void explain_sm90(const ForwardPlan& plan, std::vector<PlanStep>* steps);

}  // namespace fa4::internal
