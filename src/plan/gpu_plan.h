// What the forward kernels of all GPUs share: whether their common rules hold for a problem, and
// how its tiles are handed out.
#pragma once

#include <optional>
#include <vector>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

// Types, layouts, sizes and strides; a kernel's head dimensions are its own affair.
Support query_gpu_support(const AttentionProblem& problem);

// Query heads that may share a tile's rows: those of one key head when they are at most 128,
// else 1.
int packable_group(const AttentionProblem& problem);
// Rows of a tile that each position of such a group takes: the next power of two, so that a row's
// position is a shift. TMA fills the rows past the group with zeros and does not store them.
int packed_rows(int group);

// `forced` counts where the shape and the problem allow it.
TileSchedule choose_schedule(const AttentionProblem& problem, const DeviceSpec& device,
                             const LaunchShape& shape, std::optional<TileSource> forced);

void explain_head_dims(const AttentionProblem& problem, int head_dim, int head_dim_v,
                       std::vector<PlanStep>* steps);
void explain_schedule(const AttentionProblem& problem, const TileSchedule& schedule,
                      std::vector<PlanStep>* steps);

}  // namespace fa4::internal
