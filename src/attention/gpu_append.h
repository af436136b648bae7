// Appending to caches on a GPU.
#pragma once

#include <memory>

#include "attention/gpu_op.h"
#include "plan/kernel_spec.h"
#include "problem/append_args.h"

namespace fa4::internal {

// The kernel of one element type, into caches of it or of e4m3 (`is_quantised`), found, compiled
// and loaded. Any thread may execute it.
class GpuAppend {
 public:
  // As GpuOp: throws Error{kStreamCapture} when the kernel must be loaded during a capture.
  GpuAppend(std::shared_ptr<Device> device, Element element, bool is_quantised, void* stream);

  // Enqueues one launch on args.stream, safe in a capture. `args` are completed, and the device
  // supports them. Throws Error{kInvalidArgument} for a pointer that is not aligned to 16 bytes.
  void execute(const AttentionProblem& problem, const AppendArgs& args) const;

 private:
  GpuOp gpu_;
};

}  // namespace fa4::internal
