// What the files of the two libraries share: how their functions are exported, and the runtime's
// last error and its kernels.
#pragma once

#include "ptxemu/exec/cuda_types.h"
#include "ptxemu/exec/gpu.h"

#define CUDART extern "C" __attribute__((visibility("default")))
#define CUDRV extern "C" __attribute__((visibility("default")))
// Another name of a function of this file, for what runtime and driver have in common.
#define SAME_AS(name, known) \
  extern "C" __attribute__((visibility("default"), alias(#known))) decltype(known) name

namespace ptxemu::exec {

// Keeps a failure for cudaGetLastError. Returns the status.
int kept(int status);

// The kernel of a host function's address, of what cudaGetKernel gave for it, or of what the driver
// gave; null when it is none.
KernelEntry* find_kernel(const void* function);

// The kernel that cuModuleGetFunction or cuLibraryGetKernel gave; null when it is none.
KernelEntry* driver_kernel(const void* handle);
int parameter_info(KernelEntry& kernel, size_t index, size_t* offset, size_t* bytes);

// kCooperativeTooLarge where the blocks of a grid are not resident together.
int check_cooperative(KernelEntry& kernel, const Dim3& grid, const Dim3& block,
                      uint64_t shared_bytes);

// cudaMemoryType.
enum class MemoryType : int { kUnregistered = 0, kHost = 1, kDevice = 2, kManaged = 3 };

}  // namespace ptxemu::exec
