// Into how many subgroups the backward on a GPU cuts the group of query heads of a key head.
#pragma once

#include "core/device_spec.h"
#include "plan/backward_order.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// A work is a block of keys and all query heads of its group: few key heads leave a device idle,
// and the longest works of a causal mask end late. Subgroups, which divide it, are works of
// their own, whose dk and dv are added up at the end. If deterministic, how many follows from
// heads, mask and kernel alone, so that a sequence's gradients have the same bits whatever else is
// in the batch.
int choose_subgroups(const AttentionProblem& problem, const DeviceSpec& device,
                     const BackwardShape& shape);

}  // namespace fa4::internal
