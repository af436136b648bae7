// An Accuracy as text and JSON, and the exponential's error that the lse rule needs.
#pragma once

#include <string>

#include "json.h"
#include "plan/forward_plan.h"
#include "verify/accuracy.h"

namespace fa4::cli {

// Largest relative error of the exponential that the plan's kernel uses.
double exp_error_of(const fa4::internal::ForwardPlan& plan);

Json accuracy_json(const fa4::internal::Accuracy& accuracy);
// "error 1.2e-3, bound 4e-3; rms 1e-5, bound 3e-5"
std::string accuracy_text(const fa4::internal::Accuracy& accuracy);

}  // namespace fa4::cli
