// Cuts of packed sequences on a GPU.
#pragma once

#include <memory>

#include "attention/gpu_op.h"
#include "problem/cut_args.h"

namespace fa4::internal {

// The kernel, found, compiled and loaded. Any thread may execute it.
class GpuCut {
 public:
  // As GpuOp: throws Error{kStreamCapture} when the kernel must be loaded during a capture.
  GpuCut(std::shared_ptr<Device> device, void* stream);

  // Enqueues one launch, safe in a capture.
  void execute(const CutArgs& args, void* stream) const;

 private:
  GpuOp gpu_;
};

}  // namespace fa4::internal
