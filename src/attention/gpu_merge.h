// Partial results of attention put together on a GPU.
#pragma once

#include <memory>

#include "attention/gpu_op.h"
#include "problem/merge_args.h"

namespace fa4::internal {

// The kernel of few parts, found, compiled and loaded. Any thread may execute it.
class GpuMerge {
 public:
  static constexpr int kMostParts = 128;

  // As GpuOp: throws Error{kStreamCapture} when the kernel must be loaded during a capture.
  GpuMerge(std::shared_ptr<Device> device, void* stream);

  // Enqueues one launch on args.stream, safe in a capture. Arguments are those that checked()
  // returned, of at most kMostParts and below 2^31 rows.
  void execute(const MergeArgs& args) const;

 private:
  GpuOp gpu_;
};

// Of any number of parts. Arguments are those that checked() returned; parts and outputs lie in the
// device's memory. The kernel is compiled and loaded by the first call, which may not be in a
// capture. Throws Error{kNotSupported, kCompiler, kDriver, kOutOfMemory, kStreamCapture}.
void gpu_merge(const MergeArgs& args, const std::shared_ptr<Device>& device);

}  // namespace fa4::internal
