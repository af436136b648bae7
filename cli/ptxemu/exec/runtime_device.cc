// libcudart's device, its errors, and the driver's functions by name (CUDA Runtime API manual).
#include <cstring>
#include <utility>

#include "ptxemu/exec/api.h"
#include "ptxemu/exec/device_info.h"
#include "ptxemu/exec/driver_entry.h"

using namespace ptxemu::exec;

namespace {

thread_local int last_error = kSuccess;

}  // namespace

int ptxemu::exec::kept(int status) {
  if (status != kSuccess) last_error = status;
  return status;
}

// --- the device

CUDART int cudaGetDeviceCount(int* count) {
  *count = 1;
  return kSuccess;
}
CUDART int cudaGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}
CUDART int cudaSetDevice(int device) { return kept(device == 0 ? kSuccess : kInvalidDevice); }
CUDART int cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
CUDART int cudaSetDeviceFlags(unsigned) { return kSuccess; }
CUDART int cudaDeviceSynchronize() { return kept(Gpu::get().synchronize()); }
CUDART int cudaDeviceReset() { return kSuccess; }
CUDART int cudaDeviceSetLimit(int, size_t) { return kSuccess; }
CUDART int cudaDeviceGetLimit(size_t* value, int limit) {
  *value = device_limit(limit);
  return kSuccess;
}
CUDART int cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return kSuccess;
}
CUDART int cudaChooseDevice(int* device, const void*) { return cudaGetDevice(device); }
CUDART int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return kSuccess;
}
CUDART int cudaDeviceGetPCIBusId(char* text, int bytes, int) {
  std::strncpy(text, kBusName, static_cast<size_t>(bytes));
  if (bytes > 0) text[bytes - 1] = '\0';
  return kSuccess;
}
CUDART int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  *device = 0;
  return kept(std::strcmp(text, kBusName) == 0 ? kSuccess : kInvalidDevice);
}
CUDART int cudaDeviceGetCacheConfig(int* config) {
  *config = 0;
  return kSuccess;
}
CUDART int cudaDeviceSetCacheConfig(int) { return kSuccess; }
CUDART int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return kSuccess;
}
CUDART int cudaGetDeviceProperties(void* properties, int device) {
  if (device != 0) return kept(kInvalidDevice);
  fill_properties(Gpu::get().facts(), properties);
  return kSuccess;
}
CUDART int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 0) return kept(kInvalidDevice);
  *value = device_attribute(Gpu::get().facts(), attribute);
  return kSuccess;
}
CUDART int cudaDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return kSuccess;
}
CUDART int cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
CUDART int cudaProfilerStart() { return kSuccess; }
CUDART int cudaProfilerStop() { return kSuccess; }

// --- errors

CUDART int cudaGetLastError() { return std::exchange(last_error, int{kSuccess}); }
CUDART int cudaPeekAtLastError() { return last_error; }
CUDART const char* cudaGetErrorName(int status) { return status_name(status); }
CUDART const char* cudaGetErrorString(int status) { return status_text(status); }

// --- the driver's functions by name

CUDART int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                            unsigned long long, int* result) {
  constexpr int kFound = 0, kNoSuchSymbol = 1;
  *function = driver_entry(name, version);
  if (result != nullptr) *result = *function == nullptr ? kNoSuchSymbol : kFound;
  if (*function == nullptr) return kept(Gpu::missing(name));
  return kSuccess;
}
CUDART int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                   int* result) {
  return cudaGetDriverEntryPointByVersion(name, function, kDriverVersion, flags, result);
}
