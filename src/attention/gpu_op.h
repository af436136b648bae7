// What the operations of a GPU share: their kernels, tensors as TMA reads them, their launches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "device/device.h"
#include "plan/steps.h"

namespace fa4::internal {

// A dimension of a tensor: how many elements, how far apart, and how many of them TMA moves at
// once.
struct TensorAxis {
  int64_t extent;
  int64_t stride;  // elements
  int box;
};

// A tensor as TMA reads or writes it.
struct GpuTensor {
  const char* name;
  const void* data;
  DType dtype;
  int64_t columns;                   // of the innermost dimension, which is contiguous
  int slab;                          // columns that TMA moves at once: 64 or 32
  std::span<const TensorAxis> axes;  // the others, from the inside; at most four
};

class GpuOp {
 public:
  // Finds the kernels of `steps` on `device`; compiles and loads those that it has not got, unless
  // `stream`, the legacy stream or this thread's is being captured: a load would break that.
  // Throws Error{kCompiler, kDriver, kOutOfMemory, kStreamCapture}.
  GpuOp(std::shared_ptr<Device> device, const std::vector<KernelStep>& steps,
        const WorkspaceLayout& workspace, void* stream);

  // Throws Error{kInvalidArgument} for a base that TMA and 16-byte accesses cannot take.
  static void check_base(const char* name, const void* data);

  // Writes the map of `tensor` for the kernel. Throws Error{kInvalidArgument} for a base that TMA
  // cannot take.
  void encode(const GpuTensor& tensor, void* map) const;

  // The part of the caller's workspace; null when the plan has none of that name.
  void* part(std::string_view name, void* workspace) const;

  // Enqueues the zeros that the first step expects.
  void zero_workspace(void* workspace, void* stream) const;

  template <class Params>
  void launch(size_t step, const Params& params, void* stream) const {
    launch(launches_[step].config, step, &params, sizeof(params), stream);
  }
  // Launches `grid` CTAs, whatever the step says.
  template <class Params>
  void launch(size_t step, int grid, const Params& params, void* stream) const {
    LaunchConfig config = launches_[step].config;
    config.grid[0] = static_cast<uint32_t>(grid);
    launch(config, step, &params, sizeof(params), stream);
  }

 private:
  void launch(const LaunchConfig& config, size_t step, const void* params, size_t bytes,
              void* stream) const;

  struct Launch {
    const Kernel* kernel;  // the device's, which keeps it
    LaunchConfig config;
  };
  std::shared_ptr<Device> device_;
  WorkspaceLayout workspace_;
  std::vector<Launch> launches_;
};

}  // namespace fa4::internal
