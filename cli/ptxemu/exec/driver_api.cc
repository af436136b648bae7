// libcuda as far as programs use it (CUDA Driver API manual): devices, one context, modules and
// libraries, memory, launches, tensor maps.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "ptxemu/exec/cuda_types.h"
#include "ptxemu/exec/device_info.h"
#include "ptxemu/exec/driver_entry.h"
#include "ptxemu/exec/gpu.h"

#define CUDRV extern "C" __attribute__((visibility("default")))

using namespace ptxemu::exec;

namespace {

// A module or library handle: its kernels live as long as it.
struct DriverModule {
  std::shared_ptr<LoadedModule> module;
  std::map<std::string, std::unique_ptr<KernelEntry>, std::less<>> kernels;
};

int load_module(void** handle, const void* image) {
  auto module = std::make_unique<DriverModule>();
  module->module = Gpu::get().add_module(image);
  *handle = module.release();
  return kSuccess;
}

int find_kernel(void** function, void* handle, const char* name) {
  auto& module = *static_cast<DriverModule*>(handle);
  std::unique_ptr<KernelEntry>& entry = module.kernels[name];
  if (entry == nullptr) {
    entry = std::make_unique<KernelEntry>();
    entry->module = module.module;
    entry->name = name;
  }
  const int status = Gpu::get().ready(*entry);
  *function = entry.get();
  return status == kInvalidDeviceFunction ? int{kNotFound} : status;
}

std::array<uint32_t, 3> shape_of(const Dim3& d) { return {d.x, d.y, d.z}; }

int launch(const DriverLaunch& config, void* function, void** arguments, void** extra) {
  if (extra != nullptr) return Gpu::missing("cuLaunchKernel with extra");
  LaunchShape shape{shape_of(config.grid), shape_of(config.block), {}, config.shared_bytes};
  for (uint32_t i = 0; i < config.num_attributes; ++i) {
    if (config.attributes[i].id == kClusterDimension) {
      shape.cluster = shape_of(config.attributes[i].value.cluster);
    }
  }
  return Gpu::get().launch(*static_cast<KernelEntry*>(function), shape, arguments, config.stream);
}

void* as_pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

int context = 0;  // there is one; its address is the handle

}  // namespace

CUDRV int cuInit(unsigned) { return kSuccess; }
CUDRV int cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return kSuccess;
}
CUDRV int cuGetErrorName(int status, const char** text) {
  *text = status_name(status);
  return kSuccess;
}
CUDRV int cuGetErrorString(int status, const char** text) {
  *text = status_text(status);
  return kSuccess;
}
CUDRV int cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}
CUDRV int cuDeviceGet(int* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? kSuccess : kInvalidDevice;
}
CUDRV int cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, Gpu::get().facts().name.c_str(), static_cast<size_t>(bytes));
  if (bytes > 0) name[bytes - 1] = '\0';
  return kSuccess;
}
CUDRV int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = device_attribute(Gpu::get().facts(), attribute);
  return kSuccess;
}
CUDRV int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = Gpu::get().facts().memory_bytes;
  return kSuccess;
}

CUDRV int cuCtxCreate_v2(void** handle, unsigned, int) {
  *handle = &context;
  return kSuccess;
}
CUDRV int cuCtxCreate_v4(void** handle, void*, unsigned, int) {
  *handle = &context;
  return kSuccess;
}
CUDRV int cuCtxDestroy_v2(void*) { return kSuccess; }
CUDRV int cuDevicePrimaryCtxRetain(void** handle, int) {
  *handle = &context;
  return kSuccess;
}
CUDRV int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
CUDRV int cuCtxGetCurrent(void** handle) {
  *handle = &context;
  return kSuccess;
}
CUDRV int cuCtxSetCurrent(void*) { return kSuccess; }
CUDRV int cuCtxPushCurrent_v2(void*) { return kSuccess; }
CUDRV int cuCtxPopCurrent_v2(void** handle) {
  if (handle != nullptr) *handle = &context;
  return kSuccess;
}
CUDRV int cuCtxGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}
CUDRV int cuCtxSynchronize() { return kSuccess; }

CUDRV int cuModuleLoadData(void** module, const void* image) { return load_module(module, image); }
CUDRV int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  return load_module(module, image);
}
CUDRV int cuModuleLoadFatBinary(void** module, const void* image) {
  return load_module(module, image);
}
CUDRV int cuModuleUnload(void*) { return kSuccess; }
CUDRV int cuModuleGetFunction(void** function, void* module, const char* name) {
  return find_kernel(function, module, name);
}
CUDRV int cuModuleGetGlobal_v2(uint64_t* address, size_t* bytes, void* module, const char* name) {
  void* at = nullptr;
  const int status =
      Gpu::get().symbol(*static_cast<DriverModule*>(module)->module, name, &at, bytes);
  if (address != nullptr) *address = reinterpret_cast<uint64_t>(at);
  return status;
}
CUDRV int cuLibraryLoadData(void** library, const void* image, int*, void**, unsigned, int*, void**,
                            unsigned) {
  return load_module(library, image);
}
CUDRV int cuLibraryUnload(void*) { return kSuccess; }
CUDRV int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  return find_kernel(kernel, library, name);
}
CUDRV int cuLibraryGetModule(void** module, void* library) {
  *module = library;
  return kSuccess;
}
CUDRV int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return kSuccess;
}
CUDRV int cuLibraryGetGlobal(uint64_t* address, size_t* bytes, void* library, const char* name) {
  return cuModuleGetGlobal_v2(address, bytes, library, name);
}
CUDRV int cuFuncSetAttribute(void*, int, int) { return kSuccess; }
CUDRV int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
CUDRV int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
CUDRV int cuFuncGetAttribute(int* value, int attribute, void*) {
  constexpr int kMaxThreads = 0, kRegisters = 4, kPtx = 5, kBinary = 6, kMaxDynamicShared = 8;
  const DeviceFacts& facts = Gpu::get().facts();
  *value = 0;
  if (attribute == kMaxThreads) *value = device_attribute(facts, 1);
  if (attribute == kRegisters) *value = 64;
  if (attribute == kPtx || attribute == kBinary) *value = static_cast<int>(facts.architecture);
  if (attribute == kMaxDynamicShared) *value = device_attribute(facts, 97);
  return kSuccess;
}

CUDRV int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared_bytes, void* stream,
                         void** arguments, void** extra) {
  const DriverLaunch config{{gx, gy, gz}, {bx, by, bz}, shared_bytes, 0, stream, nullptr, 0};
  return launch(config, function, arguments, extra);
}
CUDRV int cuLaunchKernelEx(const DriverLaunch* config, void* function, void** arguments,
                           void** extra) {
  return launch(*config, function, arguments, extra);
}

CUDRV int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  void* pointer = nullptr;
  const int status = Gpu::get().allocate(&pointer, bytes);
  *address = reinterpret_cast<uint64_t>(pointer);
  return status;
}
CUDRV int cuMemAllocAsync(uint64_t* address, size_t bytes, void*) {
  return cuMemAlloc_v2(address, bytes);
}
CUDRV int cuMemFree_v2(uint64_t address) { return Gpu::get().free(as_pointer(address)); }
CUDRV int cuMemFreeAsync(uint64_t address, void*) { return cuMemFree_v2(address); }
CUDRV int cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return Gpu::get().allocate(pointer, bytes);
}
CUDRV int cuMemFreeHost(void* pointer) { return Gpu::get().free(pointer); }
CUDRV int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = Gpu::get().facts().memory_bytes;
  return kSuccess;
}
CUDRV int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return Gpu::get().copy(as_pointer(to), from, bytes, nullptr);
}
CUDRV int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  return Gpu::get().copy(to, as_pointer(from), bytes, nullptr);
}
CUDRV int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  return Gpu::get().copy(as_pointer(to), as_pointer(from), bytes, nullptr);
}
CUDRV int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return Gpu::get().copy(as_pointer(to), from, bytes, stream);
}
CUDRV int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return Gpu::get().copy(to, as_pointer(from), bytes, stream);
}
CUDRV int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return Gpu::get().copy(as_pointer(to), as_pointer(from), bytes, stream);
}
CUDRV int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count) {
  return Gpu::get().fill(as_pointer(to), value, 1, count, nullptr);
}
CUDRV int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count) {
  return Gpu::get().fill(as_pointer(to), value, 4, count, nullptr);
}
CUDRV int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void* stream) {
  return Gpu::get().fill(as_pointer(to), value, 1, count, stream);
}
CUDRV int cuMemsetD16Async(uint64_t to, unsigned short value, size_t count, void* stream) {
  return Gpu::get().fill(as_pointer(to), value, 2, count, stream);
}
CUDRV int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void* stream) {
  return Gpu::get().fill(as_pointer(to), value, 4, count, stream);
}

CUDRV int cuStreamCreate(void** stream, unsigned) {
  *stream = new Stream;
  return kSuccess;
}
CUDRV int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
CUDRV int cuStreamSynchronize(void*) { return kSuccess; }
CUDRV int cuStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
CUDRV int cuStreamIsCapturing(void* stream, int* status) {
  const bool named = reinterpret_cast<uintptr_t>(stream) <= 2;
  *status = !named && static_cast<Stream*>(stream)->captured != nullptr ? 1 : 0;
  return kSuccess;
}

CUDRV int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address,
                                 const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                                 const uint32_t* element_strides, int interleave, int swizzle, int,
                                 int oob) {
  static constexpr const char* kTypes[] = {"u8",      "u16",  "u32",     "s32", "u64",
                                           "s64",     "f16",  "f32",     "f64", "bf16",
                                           "f32_ftz", "tf32", "tf32_ftz"};
  static constexpr const char* kInterleaves[] = {"none", "16B", "32B"};
  static constexpr const char* kSwizzles[] = {"none", "32B", "64B", "128B"};
  const auto check = [](const char* what, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return true;
    Gpu::say(
        fmt::format("cuTensorMapEncodeTiled: {} {}; accepted: {} to {}", what, value, low, high));
    return false;
  };
  const auto types = static_cast<int64_t>(std::size(kTypes));
  if (!check("data type", type, 0, types - 1) || !check("rank", rank, 1, 5) ||
      !check("interleave", interleave, 0, 2) || !check("swizzle", swizzle, 0, 3)) {
    return kNotSupported;
  }
  ptxemu::TensorMapRequest request;
  request.address = reinterpret_cast<uint64_t>(address);
  request.dtype = kTypes[type];
  request.dims.assign(dims, dims + rank);
  request.strides_bytes.assign(strides, strides + rank - 1);
  request.box.assign(box, box + rank);
  request.element_strides.assign(element_strides, element_strides + rank);
  request.interleave = kInterleaves[interleave];
  request.swizzle = kSwizzles[swizzle];
  request.oob = oob == 0 ? "zero" : "nan";
  const std::string problem = Gpu::get().tensor_map(request, map);
  if (problem.empty()) return kSuccess;
  Gpu::say("cuTensorMapEncodeTiled: " + problem);
  return kInvalidValue;
}
CUDRV int cuTensorMapReplaceAddress(void* map, void* address) {
  std::memcpy(map, &address, sizeof address);
  return kSuccess;
}

CUDRV int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, int* result) {
  constexpr int kFound = 0, kNoSuchSymbol = 1;
  *function = driver_entry(name);
  if (result != nullptr) *result = *function == nullptr ? kNoSuchSymbol : kFound;
  return *function == nullptr ? kNotFound : kSuccess;
}
