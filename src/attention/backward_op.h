// The backward operation end to end: plan -> prepare -> execute.
#pragma once

#include <memory>

#include "device/device.h"
#include "plan/backward_plan.h"
#include "problem/backward_args.h"

namespace fa4::internal {

// A prepared operation: compiled, loaded, threads started. Immutable: any number of threads may
// execute it at once, each with its own workspace and outputs.
class BackwardOp {
 public:
  virtual ~BackwardOp() = default;
  const BackwardPlan& plan() const { return plan_; }

  // Enqueues (GPU) or runs (CPU) the operation. No allocation, no synchronisation, capturable.
  // Throws Error{kInvalidArgument} for missing pointers or a small workspace.
  virtual void execute(const BackwardArgs& args) const = 0;

 protected:
  explicit BackwardOp(const BackwardPlan& plan) : plan_(plan) {}

  BackwardPlan plan_;
};

// As prepare of a forward plan.
std::shared_ptr<const BackwardOp> prepare(const BackwardPlan& plan, std::shared_ptr<Device> device,
                                          void* stream = nullptr);

}  // namespace fa4::internal
