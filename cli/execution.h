// A prepared operation of either direction with its memory on the device that runs it.
#pragma once

#include <memory>
#include <string>

#include "attention/backward_op.h"
#include "attention/forward_op.h"
#include "device_side.h"
#include "devices.h"

namespace fa4::cli {

// What both directions share.
template <class Op, class Args>
class BoundOperation {
 public:
  const auto& plan() const { return op_->plan(); }
  std::string kernel_name() const { return fa4::internal::kernel_name(plan()); }

  // Pointers of the device itself, borrowed; the workspace is this object's.
  void bind_in_place(const Args& args) {
    args_ = args;
    args_.stream = side_.stream();
    args_.workspace_bytes = plan().workspace.bytes();
    args_.workspace = side_.workspace();
  }
  // Runs to the end.
  void run() {
    side_.run_to_the_end([this] { op_->execute(args_); });
  }
  // Mean time of `repeats` runs one after another, by the device's own clock.
  double milliseconds(int repeats) {
    return side_.milliseconds(repeats, [this] { op_->execute(args_); });
  }

 protected:
  template <class Plan>
  BoundOperation(const Plan& made, const DeviceChoice& device)
      : op_(fa4::internal::prepare(made, device.device)), side_(device, made.workspace.bytes()) {}

  // Copies what both directions' arguments hold besides their tensors.
  void upload_indices(Args& args);

  std::shared_ptr<const Op> op_;
  DeviceSide side_;
  Args host_, args_;
};

class Execution : public BoundOperation<fa4::internal::ForwardOp, fa4::internal::ForwardArgs> {
 public:
  // Plans and prepares. Throws the library's Error.
  Execution(const fa4::internal::AttentionProblem& problem, const DeviceChoice& device,
            int threads);
  Execution(const fa4::internal::ForwardPlan& plan, const DeviceChoice& device);

  int tile_m() const;

  // Host pointers, borrowed; on a GPU everything is copied there, outputs included.
  void bind(const fa4::internal::ForwardArgs& host);
  // Copies out and lse to the host pointers that bind() was given.
  void fetch();
};

class BackwardExecution
    : public BoundOperation<fa4::internal::BackwardOp, fa4::internal::BackwardArgs> {
 public:
  // As Execution.
  BackwardExecution(const fa4::internal::AttentionProblem& problem, const DeviceChoice& device,
                    int threads);

  int tile_m() const;

  void bind(const fa4::internal::BackwardArgs& host);
  // Copies dq, dk, dv and dsink.
  void fetch();
};

}  // namespace fa4::cli
