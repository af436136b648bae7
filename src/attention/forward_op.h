// The forward operation end to end: plan -> prepare -> execute.
#pragma once

#include <memory>

#include "device/device.h"
#include "plan/forward_plan.h"
#include "problem/forward_args.h"

namespace fa4::internal {

// A prepared operation: compiled, loaded, threads started. Immutable: any number of threads may
// execute it at once, each with its own workspace and outputs.
class ForwardOp {
 public:
  virtual ~ForwardOp() = default;
  const ForwardPlan& plan() const { return plan_; }

  // Enqueues (GPU) or runs (CPU) the operation. No allocation, no synchronisation, capturable.
  // Throws Error{kInvalidArgument} for missing pointers or a small workspace.
  virtual void execute(const ForwardArgs& args) const = 0;

 protected:
  explicit ForwardOp(const ForwardPlan& plan) : plan_(plan) {}

  ForwardPlan plan_;
};

// Compiles and loads what the plan names and `device` has not loaded yet, which may take long; then
// it only allocates. `device` is null for a CPU plan. `stream`: one that the caller will execute
// on, or NULL. Throws Error{kCompiler, kDriver, kOutOfMemory}, and Error{kStreamCapture} when
// something must be loaded while `stream`, the legacy stream or this thread's is being captured.
std::shared_ptr<const ForwardOp> prepare(const ForwardPlan& plan, std::shared_ptr<Device> device,
                                         void* stream = nullptr);

}  // namespace fa4::internal
