// libcudart's modules, symbols, launches and functions, as programs of nvcc -cudart shared use them
// (CUDA Runtime API manual). What is nowhere here is named by missing.cc.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "ptxemu/exec/api.h"
#include "ptxemu/exec/cuda_types.h"
#include "ptxemu/exec/device_info.h"

using namespace ptxemu::exec;

namespace {

struct Variable {
  std::shared_ptr<LoadedModule> module;
  std::string name;
};

// A __managed__ variable: the program reaches it through this pointer.
struct Managed {
  Variable variable;
  void** pointer;
};

struct Registered {
  std::mutex mutex;
  std::map<const void*, std::unique_ptr<KernelEntry>> kernels;  // by the host function's address
  std::set<const KernelEntry*> handles;
  std::map<const void*, Variable> variables;
  std::vector<Managed> managed;  // that have no address yet
};
Registered& registered() {
  static Registered* const all = new Registered;
  return *all;
}

struct Configuration {
  Dim3 grid, block;
  size_t shared_bytes;
  void* stream;
};
thread_local std::vector<Configuration> configurations;

int launch(const void* function, const Dim3& grid, const Dim3& block, const Dim3& cluster,
           uint64_t shared_bytes, void** arguments, void* stream, bool programmatic = false) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  const LaunchShape shape{shape_of(grid), shape_of(block), shape_of(cluster), shared_bytes,
                          programmatic};
  return kept(Gpu::get().launch(*kernel, shape, arguments, stream));
}

// Null: the launch does not have it.
const LaunchAttribute* attribute_of(const RuntimeLaunch& launch, uint32_t id) {
  for (uint32_t i = 0; i < launch.num_attributes; ++i) {
    if (launch.attributes[i].id == id) return &launch.attributes[i];
  }
  return nullptr;
}
Dim3 cluster_of(const RuntimeLaunch& launch) {
  const LaunchAttribute* cluster = attribute_of(launch, kClusterDimension);
  return cluster == nullptr ? Dim3{0, 0, 0} : cluster->value.cluster;
}

int symbol(const void* host, void** address, size_t* bytes) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto found = all.variables.find(host);
  if (found == all.variables.end()) return kept(kNotFound);
  return kept(Gpu::get().symbol(*found->second.module, found->second.name, address, bytes));
}

int copy_symbol(const void* host, size_t offset, const void* from, void* to, size_t bytes,
                void* stream) {
  void* address = nullptr;
  if (const int status = symbol(host, &address, nullptr); status != kSuccess) return status;
  char* at = static_cast<char*>(address) + offset;
  const CopyKind kind = to == nullptr ? CopyKind::kToDevice : CopyKind::kFromDevice;
  return kept(
      Gpu::get().copy(to == nullptr ? at : to, from == nullptr ? at : from, bytes, stream, kind));
}

}  // namespace

KernelEntry* ptxemu::exec::find_kernel(const void* function) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto* entry = static_cast<const KernelEntry*>(function);
  if (all.handles.count(entry) != 0) return const_cast<KernelEntry*>(entry);
  const auto found = all.kernels.find(function);
  return found == all.kernels.end() ? driver_kernel(function) : found->second.get();
}

// --- what nvcc's own code calls

CUDART void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(
      new std::shared_ptr<LoadedModule>(Gpu::get().add_module(wrapper)));
}
CUDART void __cudaRegisterFatBinaryEnd(void**) {}
CUDART void __cudaUnregisterFatBinary(void**) {}
// Called before a __managed__ variable is touched.
CUDART char __cudaInitModule(void**) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  for (const Managed& managed : all.managed) {
    Gpu::get().symbol(*managed.variable.module, managed.variable.name, managed.pointer, nullptr);
  }
  all.managed.clear();
  return 1;
}
CUDART void __cudaRegisterFunction(void** module, const char* host, char*, const char* name, int,
                                   void*, void*, void*, void*, int*) {
  auto entry = std::make_unique<KernelEntry>();
  entry->module = *reinterpret_cast<std::shared_ptr<LoadedModule>*>(module);
  entry->name = name;
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  all.handles.insert(entry.get());
  all.kernels[host] = std::move(entry);
}
CUDART void __cudaRegisterVar(void** module, char* host, char*, const char* name, int, size_t, int,
                              int) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  all.variables[host] = {*reinterpret_cast<std::shared_ptr<LoadedModule>*>(module), name};
}
CUDART void __cudaRegisterManagedVar(void** module, void** pointer, char*, const char* name, int,
                                     size_t, int, int) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const Variable variable{*reinterpret_cast<std::shared_ptr<LoadedModule>*>(module), name};
  all.variables[pointer] = variable;
  all.managed.push_back({variable, pointer});
}
CUDART unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes,
                                            void* stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
CUDART int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared_bytes, void* stream) {
  if (configurations.empty()) return kept(kInvalidConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  std::memcpy(stream, &last.stream, sizeof last.stream);
  return kSuccess;
}
CUDART int __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = find_kernel(function);
  return kept(*kernel == nullptr ? kInvalidDeviceFunction : kSuccess);
}
CUDART int __cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** arguments,
                              size_t shared_bytes, void* stream) {
  return launch(kernel, grid, block, {0, 0, 0}, shared_bytes, arguments, stream);
}
CUDART int __cudaLaunchKernel_ptsz(const void* kernel, Dim3 grid, Dim3 block, void** arguments,
                                   size_t shared_bytes, void* stream) {
  return launch(kernel, grid, block, {0, 0, 0}, shared_bytes, arguments, stream);
}

// --- launches and functions

CUDART int cudaLaunchKernel(const void* function, Dim3 grid, Dim3 block, void** arguments,
                            size_t shared_bytes, void* stream) {
  return launch(function, grid, block, {0, 0, 0}, shared_bytes, arguments, stream);
}
CUDART int cudaLaunchKernelExC(const RuntimeLaunch* config, const void* function,
                               void** arguments) {
  const LaunchAttribute* serial = attribute_of(*config, kProgrammaticSerialization);
  return launch(function, config->grid, config->block, cluster_of(*config), config->shared_bytes,
                arguments, config->stream, serial != nullptr && serial->value.programmatic != 0);
}
CUDART int cudaGetKernel(const void** kernel, const void* function) {
  return __cudaGetKernel(kernel, function);
}
CUDART int cudaFuncSetCacheConfig(const void*, int) { return kSuccess; }
CUDART int cudaFuncGetName(const char** name, const void* function) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  *name = kernel->name.c_str();
  return kSuccess;
}
CUDART int cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* bytes) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  return kept(parameter_info(*kernel, index, offset, bytes));
}
CUDART int cudaGetFuncBySymbol(const void** function, const void* symbol) {
  return __cudaGetKernel(function, symbol);
}
// All blocks of a grid are resident together.
CUDART int cudaLaunchCooperativeKernel(const void* function, Dim3 grid, Dim3 block,
                                       void** arguments, size_t shared_bytes, void* stream) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  const int status = check_cooperative(*kernel, grid, block, shared_bytes);
  if (status != kSuccess) return kept(status);
  return launch(function, grid, block, {0, 0, 0}, shared_bytes, arguments, stream);
}

// --- variables

CUDART int cudaGetSymbolAddress(void** address, const void* host) {
  return symbol(host, address, nullptr);
}
CUDART int cudaGetSymbolSize(size_t* bytes, const void* host) {
  return symbol(host, nullptr, bytes);
}
CUDART int cudaMemcpyToSymbolAsync(const void* host, const void* from, size_t bytes, size_t offset,
                                   int, void* stream) {
  return copy_symbol(host, offset, from, nullptr, bytes, stream);
}
CUDART int cudaMemcpyToSymbol(const void* host, const void* from, size_t bytes, size_t offset,
                              int) {
  return copy_symbol(host, offset, from, nullptr, bytes, nullptr);
}
CUDART int cudaMemcpyFromSymbol(void* to, const void* host, size_t bytes, size_t offset, int) {
  return copy_symbol(host, offset, nullptr, to, bytes, nullptr);
}
CUDART int cudaMemcpyFromSymbolAsync(void* to, const void* host, size_t bytes, size_t offset, int,
                                     void* stream) {
  return copy_symbol(host, offset, nullptr, to, bytes, stream);
}
