// The attributes of kernels: what they are, and what the program sets of them, which its launches
// are held to as a GPU holds them (CUDA Runtime API manual, cudaFuncSetAttribute; Driver API
// manual, CUfunction_attribute). Runtime and driver share the numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ptxemu/exec/api.h"
#include "ptxemu/exec/cuda_types.h"
#include "ptxemu/exec/device_info.h"

namespace ptxemu::exec {
namespace {

enum Attribute : int {
  kMaxThreads = 0,
  kShared = 1,
  kLocal = 3,
  kRegisters = 4,
  kPtx = 5,
  kBinary = 6,
  kMaxDynamicShared = 8,
  kCarveout = 9,
  kClusterMustBeSet = 10,
  kClusterWidth = 11,
  kClusterDepth = 13,
  kNonPortableCluster = 14,
  kClusterScheduling = 15,
};
constexpr int kSharedPerBlock = 8, kSharedOptin = 97;  // of the device
constexpr uint64_t kPortableCluster = 8;

// What is left of the device's attribute beside the kernel's own variables.
int beside_static(const KernelFacts& facts, int attribute) {
  return device_attribute(Gpu::get().facts(), attribute) -
         static_cast<int>(facts.static_shared_bytes);
}

int most_dynamic(const KernelEntry& kernel, const KernelFacts& facts) {
  const int set = kernel.settings.max_dynamic_shared;
  return set >= 0 ? set : std::max(0, beside_static(facts, kSharedPerBlock));
}

int set_attribute(const void* function, int attribute, int value, int no_such_function) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return no_such_function;
  KernelFacts facts;
  if (const int status = Gpu::get().facts_of(*kernel, &facts); status != kSuccess) return status;
  const auto take = [value](int least, int most, int* setting) {
    if (value < least || value > most) return int{kInvalidValue};
    *setting = value;
    return int{kSuccess};
  };
  KernelSettings& settings = kernel->settings;
  switch (attribute) {
    case kMaxDynamicShared:
      return take(0, beside_static(facts, kSharedOptin), &settings.max_dynamic_shared);
    case kCarveout: return take(-1, 100, &settings.carveout);
    case kNonPortableCluster: return take(0, 1, &settings.non_portable_cluster);
    case kClusterScheduling: return take(0, 2, &settings.cluster_scheduling);
    default: return kInvalidValue;  // read only, or none; a kernel's cluster is what its PTX says
  }
}

int get_attribute(int* value, int attribute, const void* function) {
  const KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kInvalidHandle;
  KernelFacts facts;
  const int status = Gpu::get().facts_of(*const_cast<KernelEntry*>(kernel), &facts);
  if (status != kSuccess) return status;
  const KernelSettings& settings = kernel->settings;
  *value = 0;
  switch (attribute) {
    case kMaxThreads: *value = static_cast<int>(facts.max_threads); break;
    case kShared: *value = static_cast<int>(facts.static_shared_bytes); break;
    case kLocal: *value = static_cast<int>(facts.local_bytes); break;
    case kRegisters: *value = static_cast<int>(facts.registers); break;
    case kPtx: *value = static_cast<int>(kernel->module->architecture); break;
    case kBinary: *value = static_cast<int>(Gpu::get().facts().architecture); break;
    case kMaxDynamicShared: *value = most_dynamic(*kernel, facts); break;
    case kCarveout: *value = settings.carveout; break;
    case kClusterMustBeSet: *value = facts.cluster[0] != 0 ? 1 : 0; break;
    case kNonPortableCluster: *value = settings.non_portable_cluster; break;
    case kClusterScheduling: *value = settings.cluster_scheduling; break;
    default: break;
  }
  if (attribute >= kClusterWidth && attribute <= kClusterDepth) {
    *value = static_cast<int>(facts.cluster[static_cast<size_t>(attribute - kClusterWidth)]);
  }
  return kSuccess;
}

}  // namespace

int Gpu::check_launch(const KernelEntry& kernel, const LaunchShape& shape) {
  const std::lock_guard lock(mutex_);
  const KernelFacts facts = machine_->facts(kernel.module->handle, kernel.name);
  const int most = most_dynamic(kernel, facts), optin = beside_static(facts, kSharedOptin);
  if (shape.shared_bytes > static_cast<uint64_t>(most)) {
    refuse(fmt::format("kernel {}: {} bytes of dynamic shared memory; accepted: up to {}{}",
                       kernel.name, shape.shared_bytes, most,
                       most == optin ? std::string()
                                     : fmt::format(", and up to {} where the attribute "
                                                   "MaxDynamicSharedMemorySize says so",
                                                   optin)));
    return kInvalidValue;
  }
  const auto& cluster = shape.cluster[0] != 0 ? shape.cluster : facts.cluster;
  const uint64_t blocks = uint64_t{cluster[0]} * cluster[1] * cluster[2];
  if (blocks > kPortableCluster && kernel.settings.non_portable_cluster == 0) {
    refuse(
        fmt::format("kernel {}: a cluster of {} blocks; accepted: up to {}, and more where the "
                    "attribute NonPortableClusterSizeAllowed says so",
                    kernel.name, blocks, kPortableCluster));
    return kInvalidClusterSize;
  }
  return kSuccess;
}

}  // namespace ptxemu::exec

using namespace ptxemu::exec;

CUDART int cudaFuncSetAttribute(const void* function, int attribute, int value) {
  return kept(set_attribute(function, attribute, value, kInvalidDeviceFunction));
}
CUDART int cudaFuncGetAttributes(FunctionAttributes* attributes, const void* function) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  ptxemu::KernelFacts facts;
  if (const int status = Gpu::get().facts_of(*kernel, &facts); status != kSuccess) {
    return kept(status);
  }
  std::memset(attributes, 0, sizeof *attributes);
  attributes->shared_bytes = facts.static_shared_bytes;
  attributes->local_bytes = facts.local_bytes;
  attributes->max_threads = static_cast<int>(facts.max_threads);
  attributes->registers = static_cast<int>(facts.registers);
  attributes->ptx_version = static_cast<int>(kernel->module->architecture);
  attributes->binary_version = static_cast<int>(Gpu::get().facts().architecture);
  attributes->max_dynamic_shared = most_dynamic(*kernel, facts);
  attributes->carveout = kernel->settings.carveout;
  attributes->cluster_must_be_set = facts.cluster[0] != 0 ? 1 : 0;
  for (size_t i = 0; i < 3; ++i) attributes->cluster[i] = static_cast<int>(facts.cluster[i]);
  attributes->scheduling = kernel->settings.cluster_scheduling;
  attributes->non_portable = kernel->settings.non_portable_cluster;
  return kSuccess;
}
// What one block may ask for, once the attribute allows it.
CUDART int cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int,
                                                     int) {
  *bytes = 0;
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  ptxemu::KernelFacts facts;
  const int status = Gpu::get().facts_of(*kernel, &facts);
  if (status == kSuccess) *bytes = static_cast<size_t>(beside_static(facts, kSharedOptin));
  return kept(status);
}

CUDRV int cuFuncSetAttribute(void* function, int attribute, int value) {
  return set_attribute(function, attribute, value, kInvalidHandle);
}
CUDRV int cuKernelSetAttribute(int attribute, int value, void* kernel, int) {
  return set_attribute(kernel, attribute, value, kInvalidHandle);
}
CUDRV int cuFuncGetAttribute(int* value, int attribute, void* function) {
  return get_attribute(value, attribute, function);
}
CUDRV int cuKernelGetAttribute(int* value, int attribute, void* kernel, int) {
  return get_attribute(value, attribute, kernel);
}
