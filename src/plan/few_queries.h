// Packed calls that mix prompts and decoding: the sequences of few queries have a launch of their
// own, which runs beside the one of all others.
#pragma once

#include <optional>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

// nullopt: one launch takes all sequences. For a problem that query_support takes.
std::optional<FewQueries> choose_few_queries(const AttentionProblem& problem,
                                             const DeviceSpec& device);

// What is left for the main launch: as many sequences as may have more than `few` queries, with all
// of their keys, since what puts parts together is the other launch's.
AttentionProblem without_few_queries(AttentionProblem problem, const FewQueries& few);

void explain_few_queries(const FewQueries& few, std::vector<PlanStep>* steps);

}  // namespace fa4::internal
