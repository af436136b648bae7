// How one rank runs attention of a whole sequence: a function of values, but for the communicator
// that it will speak through.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/sharded_problem.h"
#include "plan/backward_plan.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

// `Plan` is ForwardPlan or BackwardPlan.
template <class Plan>
struct ContextPlan {
  ShardedProblem problem;
  std::shared_ptr<Communicator> communicator;
  std::vector<Plan> calls;
  Program program;
  Program without_lse;  // of a forward whose lse is not wanted
  WorkspaceLayout workspace;
};
using ContextForwardPlan = ContextPlan<ForwardPlan>;
using ContextBackwardPlan = ContextPlan<BackwardPlan>;

// Parts of the workspace.
inline constexpr std::string_view kWholeTensors = "whole_tensors";
inline constexpr std::string_view kStaging = "staging";
inline constexpr std::string_view kCallWorkspace = "call_workspace";

// Throws Error{kInvalidArgument, kNotSupported}: the problem, the method, the device beside the
// communicator, and what the device does not run of a rank's calls.
ContextForwardPlan plan_context_forward(const AttentionProblem& whole, const DeviceSpec& device,
                                        std::shared_ptr<Communicator> communicator,
                                        const ContextOptions& options);
ContextBackwardPlan plan_context_backward(const AttentionProblem& whole, const DeviceSpec& device,
                                          std::shared_ptr<Communicator> communicator,
                                          const ContextOptions& options);

// That of the calls' kernel.
std::string kernel_name(const ContextForwardPlan& plan);
std::string kernel_name(const ContextBackwardPlan& plan);

// What is exchanged and called, then the chain of decisions of the first call.
std::vector<PlanStep> explain(const ContextForwardPlan& plan);
std::vector<PlanStep> explain(const ContextBackwardPlan& plan);

}  // namespace fa4::internal
