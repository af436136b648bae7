// libcuda as far as programs use it (CUDA Driver API manual): devices, one context, modules and
// libraries, launches. Memory, streams and graphs are in memory_api.cc, driver_memory.cc,
// stream_api.cc and graph_api.cc.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "ptxemu/exec/api.h"
#include "ptxemu/exec/cuda_types.h"
#include "ptxemu/exec/device_info.h"
#include "ptxemu/exec/driver_entry.h"

using namespace ptxemu::exec;

namespace {

// A module or library handle: its kernels live as long as it.
struct DriverModule {
  std::shared_ptr<LoadedModule> module;
  std::map<std::string, std::unique_ptr<KernelEntry>, std::less<>> kernels;
};

// Every kernel that a module or a library gave.
struct Kernels {
  std::mutex mutex;
  std::set<const void*> handles;
};
Kernels& known_kernels() {
  static Kernels* const all = new Kernels;
  return *all;
}

int load_module(void** handle, const void* image) {
  auto module = std::make_unique<DriverModule>();
  module->module = Gpu::get().add_module(image);
  *handle = module.release();
  return kSuccess;
}

int find_in_module(void** function, void* handle, const char* name) {
  auto& module = *static_cast<DriverModule*>(handle);
  std::unique_ptr<KernelEntry>& entry = module.kernels[name];
  if (entry == nullptr) {
    entry = std::make_unique<KernelEntry>();
    entry->module = module.module;
    entry->name = name;
  }
  const int status = Gpu::get().ready(*entry);
  *function = entry.get();
  const std::lock_guard lock(known_kernels().mutex);
  known_kernels().handles.insert(entry.get());
  return status == kInvalidDeviceFunction ? int{kNotFound} : status;
}

// The arguments in one buffer (CU_LAUNCH_PARAM_BUFFER_POINTER): where each of them lies.
int unpack(KernelEntry& kernel, void** extra, std::vector<void*>* arguments) {
  constexpr uintptr_t kEnd = 0, kPointer = 1;
  char* buffer = nullptr;
  for (; reinterpret_cast<uintptr_t>(*extra) != kEnd; extra += 2) {
    if (reinterpret_cast<uintptr_t>(*extra) == kPointer) buffer = static_cast<char*>(extra[1]);
  }
  ptxemu::KernelFacts facts;
  const int status = Gpu::get().facts_of(kernel, &facts);
  for (const uint32_t offset : facts.parameter_offsets) arguments->push_back(buffer + offset);
  return buffer == nullptr ? int{kInvalidValue} : status;
}

int launch(const DriverLaunch& config, void* function, void** arguments, void** extra) {
  LaunchShape shape{shape_of(config.grid), shape_of(config.block), {}, config.shared_bytes};
  for (uint32_t i = 0; i < config.num_attributes; ++i) {
    const LaunchAttribute& attribute = config.attributes[i];
    if (attribute.id == kClusterDimension) shape.cluster = shape_of(attribute.value.cluster);
    if (attribute.id == kProgrammaticSerialization) {
      shape.programmatic = attribute.value.programmatic != 0;
    }
  }
  // A kernel of the runtime is one for the driver, too.
  KernelEntry* kernel = ptxemu::exec::find_kernel(function);
  if (kernel == nullptr) return kInvalidHandle;
  std::vector<void*> unpacked;
  if (extra != nullptr) {
    const int status = unpack(*kernel, extra, &unpacked);
    if (status != kSuccess) return status;
    arguments = unpacked.data();
  }
  return Gpu::get().launch(*kernel, shape, arguments, config.stream);
}

int context = 0;  // there is one; its address is the handle

}  // namespace

KernelEntry* ptxemu::exec::driver_kernel(const void* handle) {
  const std::lock_guard lock(known_kernels().mutex);
  if (known_kernels().handles.count(handle) == 0) return nullptr;
  return static_cast<KernelEntry*>(const_cast<void*>(handle));
}

int ptxemu::exec::parameter_info(KernelEntry& kernel, size_t index, size_t* offset, size_t* bytes) {
  ptxemu::KernelFacts facts;
  if (const int status = Gpu::get().facts_of(kernel, &facts); status != kSuccess) return status;
  if (index >= facts.parameter_offsets.size()) return kInvalidValue;
  *offset = facts.parameter_offsets[index];
  if (bytes != nullptr) *bytes = kernel.sizes[index];
  return kSuccess;
}

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
CUDRV int cuCtxSynchronize() { return Gpu::get().synchronize(); }
CUDRV int cuCtxGetApiVersion(void*, unsigned* version) {
  *version = kDriverVersion;
  return kSuccess;
}
CUDRV int cuCtxGetFlags(unsigned* flags) {
  *flags = 0;
  return kSuccess;
}
CUDRV int cuCtxGetLimit(size_t* value, int limit) {
  *value = device_limit(limit);
  return kSuccess;
}
CUDRV int cuCtxSetLimit(int, size_t) { return kSuccess; }
CUDRV int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return kSuccess;
}
CUDRV int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return kSuccess;
}
CUDRV int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return kSuccess; }
CUDRV int cuDevicePrimaryCtxReset_v2(int) { return kSuccess; }
CUDRV int cuDeviceGetUuid_v2(char* uuid, int) {
  std::memset(uuid, 0, 16);
  std::strncpy(uuid, Gpu::get().facts().name.c_str(), 15);
  return kSuccess;
}
CUDRV int cuDeviceGetPCIBusId(char* text, int bytes, int) {
  std::strncpy(text, kBusName, static_cast<size_t>(bytes));
  if (bytes > 0) text[bytes - 1] = '\0';
  return kSuccess;
}
CUDRV int cuDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return kSuccess;
}

CUDRV int cuModuleLoadData(void** module, const void* image) { return load_module(module, image); }
CUDRV int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  return load_module(module, image);
}
CUDRV int cuModuleLoadFatBinary(void** module, const void* image) {
  return load_module(module, image);
}
CUDRV int cuModuleUnload(void*) { return kSuccess; }
CUDRV int cuModuleGetFunction(void** function, void* module, const char* name) {
  return find_in_module(function, module, name);
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
  return find_in_module(kernel, library, name);
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
SAME_AS(cudaLibraryLoadData, cuLibraryLoadData);
SAME_AS(cudaLibraryUnload, cuLibraryUnload);
SAME_AS(cudaLibraryGetKernel, cuLibraryGetKernel);
SAME_AS(cudaLibraryGetGlobal, cuLibraryGetGlobal);
CUDRV int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
CUDRV int cuFuncGetName(const char** name, void* function) {
  KernelEntry* kernel = ptxemu::exec::find_kernel(function);
  if (kernel == nullptr) return kInvalidHandle;
  *name = kernel->name.c_str();
  return kSuccess;
}
SAME_AS(cuKernelGetName, cuFuncGetName);
CUDRV int cuFuncGetParamInfo(void* function, size_t index, size_t* offset, size_t* bytes) {
  KernelEntry* kernel = ptxemu::exec::find_kernel(function);
  return kernel == nullptr ? int{kInvalidHandle} : parameter_info(*kernel, index, offset, bytes);
}
SAME_AS(cuKernelGetParamInfo, cuFuncGetParamInfo);
CUDRV int cuFuncIsLoaded(int* state, void*) {
  *state = 1;
  return kSuccess;
}
CUDRV int cuFuncLoad(void*) { return kSuccess; }
CUDRV int cuModuleGetFunctionCount(unsigned* count, void* module) {
  size_t kernels = 0;
  const int status =
      Gpu::get().count_kernels(*static_cast<DriverModule*>(module)->module, &kernels);
  *count = static_cast<unsigned>(kernels);
  return status;
}
SAME_AS(cuLibraryGetKernelCount, cuModuleGetFunctionCount);

CUDRV int cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz,
                                    unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes,
                                    void* stream, void** arguments) {
  KernelEntry* kernel = ptxemu::exec::find_kernel(function);
  if (kernel == nullptr) return kInvalidHandle;
  const int status = check_cooperative(*kernel, {gx, gy, gz}, {bx, by, bz}, shared_bytes);
  if (status != kSuccess) return status;
  const DriverLaunch config{{gx, gy, gz}, {bx, by, bz}, shared_bytes, 0, stream, nullptr, 0};
  return launch(config, function, arguments, nullptr);
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

CUDRV int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t,
                              int* result) {
  constexpr int kFound = 0, kNoSuchSymbol = 1;
  *function = driver_entry(name, static_cast<uint64_t>(version));
  if (result != nullptr) *result = *function == nullptr ? kNoSuchSymbol : kFound;
  return *function == nullptr ? kNotFound : kSuccess;
}
// Tables of functions that no manual lists: none. Only a runtime that is linked statically asks the
// driver for them, and it cannot go on without.
CUDRV int cuGetExportTable(const void** table, const void*) {
  static std::once_flag said;
  std::call_once(said, [] {
    Gpu::say(
        "cuGetExportTable: the program has its CUDA runtime linked statically, which asks the "
        "driver "
        "for functions that no manual names; accepted: nvcc -cudart shared, or the driver alone");
  });
  *table = nullptr;
  return kNotFound;
}
