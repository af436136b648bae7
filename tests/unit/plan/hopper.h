// What the plan tests of Hopper's forward ask of a problem.
#pragma once

#include <string>
#include <variant>

#include "plan/sm90_plan.h"
#include "problems.h"

namespace fa4::internal {

inline Sm90ForwardSpec spec_of(const ProblemDesc& desc) {
  const ForwardPlan plan = plan_forward(AttentionProblem::make(desc), h200_spec());
  return std::get<Sm90ForwardSpec>(plan.main);
}

// Why it is not supported; empty where it is.
inline std::string refusal(const ProblemDesc& desc) {
  return query_support(AttentionProblem::make(desc), h200_spec()).reason;
}

}  // namespace fa4::internal
