// Partial results of attention put together on a GPU.
#pragma once

#include <memory>

#include "device/device.h"
#include "problem/merge_args.h"

namespace fa4::internal {

// Arguments are those that checked() returned; parts and outputs lie in the device's memory. The
// kernel is compiled and loaded by the first call, which may not be in a capture. Throws
// Error{kNotSupported, kCompiler, kDriver, kOutOfMemory, kStreamCapture}.
void gpu_merge(const MergeArgs& args, const std::shared_ptr<Device>& device);

}  // namespace fa4::internal
