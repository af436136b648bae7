// libcudart as far as programs of nvcc -cudart shared use it (CUDA Runtime API manual). What is not
// here is named by missing.cc.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "ptxemu/exec/cuda_types.h"
#include "ptxemu/exec/device_info.h"
#include "ptxemu/exec/driver_entry.h"
#include "ptxemu/exec/gpu.h"

#define CUDART extern "C" __attribute__((visibility("default")))

using namespace ptxemu::exec;

namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  Clock::time_point at;
};

struct Variable {
  std::shared_ptr<LoadedModule> module;
  std::string name;
};

struct Registered {
  std::mutex mutex;
  std::map<const void*, std::unique_ptr<KernelEntry>> kernels;  // by the host function's address
  std::set<const KernelEntry*> handles;
  std::map<const void*, Variable> variables;
};
Registered& registered() {
  static Registered* const all = new Registered;
  return *all;
}

thread_local int last_error = kSuccess;
int kept(int status) {
  if (status != kSuccess) last_error = status;
  return status;
}

struct Configuration {
  Dim3 grid, block;
  size_t shared_bytes;
  void* stream;
};
thread_local std::vector<Configuration> configurations;

// A host function's address, or what __cudaGetKernel gave for it.
KernelEntry* find_kernel(const void* function) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto* entry = static_cast<const KernelEntry*>(function);
  if (all.handles.count(entry) != 0) return const_cast<KernelEntry*>(entry);
  const auto found = all.kernels.find(function);
  return found == all.kernels.end() ? nullptr : found->second.get();
}

std::array<uint32_t, 3> shape_of(const Dim3& d) { return {d.x, d.y, d.z}; }

int launch(const void* function, const Dim3& grid, const Dim3& block, const Dim3& cluster,
           uint64_t shared_bytes, void** arguments, void* stream) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  const LaunchShape shape{shape_of(grid), shape_of(block), shape_of(cluster), shared_bytes};
  return kept(Gpu::get().launch(*kernel, shape, arguments, stream));
}

Dim3 cluster_of(const RuntimeLaunch& launch) {
  for (uint32_t i = 0; i < launch.num_attributes; ++i) {
    if (launch.attributes[i].id == kClusterDimension) return launch.attributes[i].value.cluster;
  }
  return {0, 0, 0};
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
  return kept(Gpu::get().copy(to == nullptr ? at : to, from == nullptr ? at : from, bytes, stream));
}

}  // namespace

// --- what nvcc's own code calls

CUDART void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(
      new std::shared_ptr<LoadedModule>(Gpu::get().add_module(wrapper)));
}
CUDART void __cudaRegisterFatBinaryEnd(void**) {}
CUDART void __cudaUnregisterFatBinary(void**) {}
CUDART char __cudaInitModule(void**) { return 0; }
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
  return launch(function, config->grid, config->block, cluster_of(*config), config->shared_bytes,
                arguments, config->stream);
}
CUDART int cudaGetKernel(const void** kernel, const void* function) {
  return __cudaGetKernel(kernel, function);
}
CUDART int cudaFuncSetAttribute(const void* function, int, int) {
  KernelEntry* kernel = find_kernel(function);
  return kept(kernel == nullptr ? int{kInvalidDeviceFunction} : Gpu::get().ready(*kernel));
}
CUDART int cudaFuncGetAttributes(FunctionAttributes* attributes, const void* function) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  if (const int status = Gpu::get().ready(*kernel); status != kSuccess) return kept(status);
  const DeviceFacts& facts = Gpu::get().facts();
  std::memset(attributes, 0, sizeof *attributes);
  attributes->max_threads = device_attribute(facts, 1);
  attributes->registers = 64;
  attributes->ptx_version = attributes->binary_version = static_cast<int>(facts.architecture);
  attributes->max_dynamic_shared = device_attribute(facts, 97);
  return kSuccess;
}
CUDART int cudaFuncSetCacheConfig(const void*, int) { return kSuccess; }
// One block a multiprocessor: what the emulator runs.
CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return kSuccess;
}
CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                  size_t, unsigned) {
  *blocks = 1;
  return kSuccess;
}
CUDART int cudaOccupancyMaxActiveClusters(int* clusters, const void*, const RuntimeLaunch* config) {
  const Dim3 c = cluster_of(*config);
  const int blocks = static_cast<int>(std::max(1u, c.x * c.y * c.z));
  *clusters = Gpu::get().facts().multiprocessors / blocks;
  return kSuccess;
}
CUDART int cudaOccupancyMaxPotentialClusterSize(int* size, const void*, const RuntimeLaunch*) {
  *size = 8;
  return kSuccess;
}

// --- memory

CUDART int cudaMalloc(void** pointer, size_t bytes) {
  return kept(Gpu::get().allocate(pointer, bytes));
}
CUDART int cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
  return kept(Gpu::get().allocate(pointer, bytes));
}
CUDART int cudaMallocAsync(void** pointer, size_t bytes, void*) {
  return kept(Gpu::get().allocate(pointer, bytes));
}
CUDART int cudaFree(void* pointer) { return kept(Gpu::get().free(pointer)); }
CUDART int cudaFreeAsync(void* pointer, void*) { return kept(Gpu::get().free(pointer)); }
CUDART int cudaMallocHost(void** pointer, size_t bytes) {
  return kept(Gpu::get().allocate(pointer, bytes));
}
CUDART int cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return kept(Gpu::get().allocate(pointer, bytes));
}
CUDART int cudaFreeHost(void* pointer) { return kept(Gpu::get().free(pointer)); }
CUDART int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  return kept(Gpu::get().copy(to, from, bytes, nullptr));
}
CUDART int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
  return kept(Gpu::get().copy(to, from, bytes, stream));
}
CUDART int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                             size_t width, size_t height, int, void* stream) {
  for (size_t row = 0; row < height; ++row) {
    const int status =
        Gpu::get().copy(static_cast<char*>(to) + row * to_pitch,
                        static_cast<const char*>(from) + row * from_pitch, width, stream);
    if (status != kSuccess) return kept(status);
  }
  return kSuccess;
}
CUDART int cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                        size_t width, size_t height, int kind) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}
CUDART int cudaMemset(void* to, int value, size_t bytes) {
  return kept(Gpu::get().fill(to, static_cast<uint32_t>(value), 1, bytes, nullptr));
}
CUDART int cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  return kept(Gpu::get().fill(to, static_cast<uint32_t>(value), 1, bytes, stream));
}
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
CUDART int cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = Gpu::get().facts().memory_bytes;
  return kSuccess;
}
CUDART int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  constexpr int kHost = 0, kDevice = 2;
  std::memset(attributes, 0, sizeof *attributes);
  const bool device = Gpu::get().is_device(pointer);
  attributes->type = device ? kDevice : kHost;
  attributes->device_pointer = device ? const_cast<void*>(pointer) : nullptr;
  attributes->host_pointer = const_cast<void*>(pointer);
  return kSuccess;
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
CUDART int cudaDeviceSynchronize() { return kSuccess; }
CUDART int cudaDeviceReset() { return kSuccess; }
CUDART int cudaDeviceSetLimit(int, size_t) { return kSuccess; }
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

// --- streams, events, graphs

CUDART int cudaStreamCreate(void** stream) {
  *stream = new Stream;
  return kSuccess;
}
CUDART int cudaStreamCreateWithFlags(void** stream, unsigned) { return cudaStreamCreate(stream); }
CUDART int cudaStreamCreateWithPriority(void** stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
CUDART int cudaStreamDestroy(void* stream) {
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
CUDART int cudaStreamSynchronize(void*) { return kSuccess; }
CUDART int cudaStreamQuery(void*) { return kSuccess; }
CUDART int cudaStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
CUDART int cudaStreamBeginCapture(void* stream, int) {
  static_cast<Stream*>(stream)->captured = std::make_shared<Graph>();
  return kSuccess;
}
CUDART int cudaStreamEndCapture(void* stream, void** graph) {
  *graph = new std::shared_ptr<Graph>(std::move(static_cast<Stream*>(stream)->captured));
  return kSuccess;
}
CUDART int cudaStreamIsCapturing(void* stream, int* status) {
  const bool named = reinterpret_cast<uintptr_t>(stream) <= 2;
  *status = !named && static_cast<Stream*>(stream)->captured != nullptr ? 1 : 0;
  return kSuccess;
}
CUDART int cudaGraphInstantiate(void** executable, void* graph, unsigned long long) {
  *executable = new std::shared_ptr<Graph>(*static_cast<std::shared_ptr<Graph>*>(graph));
  return kSuccess;
}
CUDART int cudaGraphLaunch(void* executable, void*) {
  for (const auto& node : (*static_cast<std::shared_ptr<Graph>*>(executable))->nodes) {
    if (const int status = node(); status != kSuccess) return kept(status);
  }
  return kSuccess;
}
CUDART int cudaGraphDestroy(void* graph) {
  delete static_cast<std::shared_ptr<Graph>*>(graph);
  return kSuccess;
}
CUDART int cudaGraphExecDestroy(void* executable) { return cudaGraphDestroy(executable); }
CUDART int cudaEventCreate(void** event) {
  *event = new Event{Clock::now()};
  return kSuccess;
}
CUDART int cudaEventCreateWithFlags(void** event, unsigned) { return cudaEventCreate(event); }
CUDART int cudaEventDestroy(void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}
CUDART int cudaEventRecord(void* event, void*) {
  static_cast<Event*>(event)->at = Clock::now();
  return kSuccess;
}
CUDART int cudaEventSynchronize(void*) { return kSuccess; }
CUDART int cudaEventQuery(void*) { return kSuccess; }
CUDART int cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const std::chrono::duration<float, std::milli> elapsed =
      static_cast<Event*>(end)->at - static_cast<Event*>(begin)->at;
  *milliseconds = elapsed.count();
  return kSuccess;
}

// --- the driver's functions by name

CUDART int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                            unsigned long long, int* result) {
  constexpr int kFound = 0, kNoSuchSymbol = 1;
  *function = driver_entry(name);
  if (result != nullptr) *result = *function == nullptr ? kNoSuchSymbol : kFound;
  if (*function == nullptr) return kept(Gpu::missing(name));
  return kSuccess;
}
CUDART int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                   int* result) {
  return cudaGetDriverEntryPointByVersion(name, function, kDriverVersion, flags, result);
}
