// What programs ask an emulated device about itself.
#pragma once

#include "ptxemu/exec/gpu.h"

namespace ptxemu::exec {

// cudaDeviceAttr and CUdevice_attribute, which share their numbers; 0 for those not modelled.
int device_attribute(const DeviceFacts& facts, int attribute);
// cudaLimit and CUlimit; 0 for those not modelled.
size_t device_limit(int limit);
inline constexpr const char* kBusName = "0000:01:00.0";
void fill_properties(const DeviceFacts& facts, void* properties);
const char* status_name(int status);
const char* status_text(int status);

}  // namespace ptxemu::exec
