// The memory that a rank's tensors lie in, and what is done to it between two exchanges.
#pragma once

#include <memory>

#include "core/thread_pool.h"
#include "device/device.h"
#include "distributed/program.h"
#include "problem/cut_args.h"
#include "problem/merge_args.h"
#include "problem/sum_args.h"

namespace fa4::internal {

// The host's, or a device's, where everything is enqueued on `stream`. Nothing allocates.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void copy(const CopyRows& copy, void* stream) const = 0;
  virtual void zero(void* to, size_t bytes, void* stream) const = 0;
  virtual void sum(const SumArgs& args, void* stream) const = 0;
  virtual void cut(const CutArgs& args, void* stream) const = 0;
  virtual void merge(const MergeArgs& args) const = 0;  // on args.stream
};

std::unique_ptr<const Memory> host_memory(std::shared_ptr<ThreadPool> pool);

// The kernels of the program's steps are compiled and loaded here. Throws as GpuOp does.
std::unique_ptr<const Memory> device_memory(std::shared_ptr<Device> device, const Program& program,
                                            void* stream);

}  // namespace fa4::internal
