// Hopper: whether its backward kernel takes a problem, and which variant runs it.
#pragma once

#include <vector>

#include "core/device_spec.h"
#include "kernels/sm90/backward/traits.h"
#include "plan/explain.h"
#include "plan/gpu_backward_plan.h"

namespace fa4::internal {

struct Sm90BackwardSpec {
  sm90::BwdTraits traits;
  int subgroups = 1;  // works of a block of keys
  BwdOrder order = {};
  int num_sms = 0;  // at most as many CTAs
  KernelSource source() const;
  BackwardShape shape() const;
};

Support query_sm90_backward_support(const AttentionProblem& problem);

// For a problem that it takes.
Sm90BackwardSpec plan_sm90_backward(const AttentionProblem& problem, const DeviceSpec& device);

// Every kernel of the backward that the build compiles ahead of time.
std::vector<PrebuiltKernel> sm90_backward_kernels();

void explain_sm90_backward(const AttentionProblem& problem, const Sm90BackwardSpec& spec,
                           std::vector<PlanStep>* steps);

}  // namespace fa4::internal
