#include "device/cuda/cuda_kernel.h"

#include <cstring>

namespace fa4::internal {
namespace {

// A cubin as it is; PTX ends in NUL, and what its compiler says is part of the error.
CuModule load_module(const DriverApi& api, const DeviceSpec& device, const KernelImage& image) {
  CuModule module = nullptr;
  char errors[4096] = {};
  int options[] = {kCuJitErrorLog, kCuJitErrorLogBytes};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof errors)};
  const CuResult result = api.module_load(&module, image.bytes.data(), 2, options, values);
  if (result == kCuSuccess) return module;
  if (char* end = std::strchr(errors, '\n')) *end = '\0';
  check_driver(api, result, device.name,
               fmt::format("loading {}, compiled for {}, on {}{}{}", image.display_name,
                           image.architecture, device.architecture, errors[0] ? ": " : "", errors)
                   .c_str());
  return module;
}

}  // namespace

CudaKernel::CudaKernel(const DriverApi& api, CuContext context, const DeviceSpec& device,
                       const KernelImage& image, uint32_t dynamic_smem_bytes)
    : api_(api),
      context_(context),
      device_(device.name),
      launch_name_("launch of " + image.display_name) {
  const ContextScope scope(api_, context_, device_);
  module_ = load_module(api_, device, image);
  try {
    check_driver(api_, api_.module_function(&function_, module_, image.entry.c_str()), device_,
                 ("cuModuleGetFunction of " + image.entry).c_str());
    // Also loads the code now: under lazy loading a first launch inside a capture could not.
    check_driver(api_,
                 api_.function_set_attribute(function_, kCuMaxDynamicSmem,
                                             static_cast<int>(dynamic_smem_bytes)),
                 device_,
                 fmt::format("{} bytes of dynamic shared memory for {} (the device has {} a block)",
                             dynamic_smem_bytes, image.display_name, device.smem_per_block_bytes)
                     .c_str());
  } catch (...) {
    api_.module_unload(module_);
    throw;
  }
}

CudaKernel::~CudaKernel() {
  try {
    const ContextScope scope(api_, context_, device_);
    api_.module_unload(module_);
  } catch (const std::exception&) {  // the driver is already gone, and the module with it
  }
}

void CudaKernel::launch(const LaunchConfig& config, const void* params, size_t,
                        void* stream) const {
  CuLaunchConfig launch{};
  std::memcpy(launch.grid, config.grid, sizeof launch.grid);
  std::memcpy(launch.block, config.block, sizeof launch.block);
  launch.shared_bytes = config.dynamic_smem_bytes;
  launch.stream = stream;
  CuLaunchAttribute attributes[2]{};
  launch.attributes = attributes;
  if (config.cluster[0] * config.cluster[1] * config.cluster[2] > 1) {
    CuLaunchAttribute& cluster = attributes[launch.num_attributes++];
    cluster.id = kCuLaunchAttributeCluster;
    cluster.value.cluster = {config.cluster[0], config.cluster[1], config.cluster[2]};
  }
  if (config.waits_itself) {
    CuLaunchAttribute& serialization = attributes[launch.num_attributes++];
    serialization.id = kCuLaunchAttributeProgrammaticSerialization;
    serialization.value.programmatic_serialization = 1;
  }
  void* arguments[] = {const_cast<void*>(params)};
  const ContextScope scope(api_, context_, device_);
  check_driver(api_, api_.launch(&launch, function_, arguments, nullptr), device_,
               launch_name_.c_str());
}

}  // namespace fa4::internal
