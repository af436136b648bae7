// The emulated GPU of a process that `ptxemu exec` started: one for both of its CUDA libraries.
//
// Streams run in order and at once, so that every call has done its work when it returns; a stream
// that is being captured keeps its work in a graph instead. Safe for several threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptxemu/machine.h"

namespace ptxemu::exec {

// The numbers that runtime and driver share.
enum Status : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kInvalidDeviceFunction = 98,
  kInvalidDevice = 101,
  kNoKernelImage = 209,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kNotFound = 500,
  kAssert = 710,
  kLaunchFailure = 719,
  kCooperativeTooLarge = 720,
  kInvalidClusterSize = 912,
  kNotSupported = 801,
  kGraphUpdateFailure = 910,
};

struct DeviceFacts {
  std::string name;
  uint32_t architecture = 100;  // 90
  int multiprocessors = 148;
  int l2_bytes = 0;
  int memory_clock_khz = 0, memory_bus_bits = 0;
  uint64_t memory_bytes = 0;
};

// A module's PTX, parsed when it is first needed.
struct LoadedModule {
  std::string name;
  std::string text;
  std::string problem;        // not empty: there is no PTX, and why
  uint32_t architecture = 0;  // that the PTX is for
  ModuleHandle handle;
};

// What the program has set of a kernel's attributes.
struct KernelSettings {
  int max_dynamic_shared = -1;  // -1: what a block has without asking
  int carveout = -1, non_portable_cluster = 0, cluster_scheduling = 0;
};

struct KernelEntry {
  std::shared_ptr<LoadedModule> module;
  std::string name;
  std::vector<uint32_t> sizes;  // of its parameters, once known
  KernelSettings settings;
};

struct LaunchShape {
  std::array<uint32_t, 3> grid{}, block{}, cluster{};
  uint64_t shared_bytes = 0;
  bool programmatic = false;  // may start before the last kernel of its stream ends
};

using ArgumentBytes = std::vector<std::vector<std::byte>>;

struct KernelWork;  // exec/graph.h

enum class MemoryKind { kHost, kDevice, kManaged };
struct Allocation {
  void* begin = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
};

// cudaMemcpyKind: which sides of a copy have to be on the device.
enum class CopyKind : int {
  kOnHost = 0,
  kToDevice = 1,
  kFromDevice = 2,
  kOnDevice = 3,
  kByAddress = 4,
};

class Gpu {
 public:
  static Gpu& get();

  const DeviceFacts& facts() const { return facts_; }

  std::shared_ptr<LoadedModule> add_module(const void* image);
  // Loads the module's PTX; a status, and a line on standard error when it cannot.
  int ready(LoadedModule& module);
  int ready(KernelEntry& kernel);
  int launch(KernelEntry& kernel, const LaunchShape& shape, void** arguments, void* stream);
  // The two halves of a launch: the arguments as they are now, and the run, of a graph's kernel.
  int bind(KernelEntry& kernel, void** arguments, ArgumentBytes* bytes);
  int run(const KernelWork& work, bool beside_last);
  int count_kernels(LoadedModule& module, size_t* count);
  int facts_of(KernelEntry& kernel, KernelFacts* facts);
  // Blocks of so many threads and bytes of dynamic shared memory that the machine has on one
  // multiprocessor at a time; 0 where it would refuse them.
  int blocks_per_multiprocessor(KernelEntry& kernel, uint64_t threads, uint64_t shared_bytes,
                                int* blocks);
  // What a kernel that trapped or hung left behind: all later work fails with it.
  int sticky();
  // The same, when the host has waited for what was enqueued.
  int synchronize();
  int symbol(LoadedModule& module, const std::string& name, void** address, size_t* bytes);

  int allocate(void** pointer, size_t bytes, MemoryKind kind = MemoryKind::kDevice);
  // `rows` rows of `width` bytes, which lie a *pitch apart.
  int allocate_pitched(void** pointer, size_t* pitch, size_t width, size_t rows);
  int free(void* pointer);
  // The allocation that holds `pointer`; begin is null when none does.
  Allocation allocation_of(const void* pointer);
  size_t allocated_bytes();
  // The program's own memory that kernels would reach: a copy takes it for the device's.
  int register_host(void* pointer, size_t bytes);
  void unregister_host(void* pointer);
  // kInvalidValue where one side is not in an allocation though `kind` says so, reaches past its
  // end, or is not the program's to read or write.
  int copy(void* to, const void* from, size_t bytes, void* stream, CopyKind kind);
  // Fills `count` elements of `width` bytes (1, 2, 4), aligned to that.
  int fill(void* to, uint32_t value, size_t width, size_t count, void* stream);

  // Runs `work` now, or keeps it, as a node of this type, when the stream is being captured.
  int enqueue(void* stream, std::function<int()> work, int node_type);

  // One line on standard error: "ptxemu exec: ...".
  static void say(std::string line);
  // Names a call that these libraries lack.
  static int missing(const char* call);
  std::string tensor_map(const TensorMapRequest& request, void* map);  // "" or what is wrong

 private:
  Gpu();
  enum class Side { kAny, kDevice };
  bool may_touch(const void* pointer, size_t bytes, Side side);
  std::string replacement(const std::string& kernel) const;
  int run_now(const KernelWork& work, bool beside_last);
  // kSuccess where the kernel's attributes allow such a launch; the kernel is ready.
  int check_launch(const KernelEntry& kernel, const LaunchShape& shape);
  // Says why a kernel does not run, which is an error of the emulator's report too.
  void refuse(const std::string& line) const;
  void log(const LaunchRequest& request, const LaunchReport& report) const;

  std::recursive_mutex mutex_;
  DeviceFacts facts_;
  std::unique_ptr<Machine> machine_;
  std::string ptx_folder_, log_file_;
  int sticky_ = kSuccess;
  std::optional<void*> last_kernel_stream_;  // of the last kernel that ran; none: a graph's
  std::map<uintptr_t, Allocation> allocations_, registered_;
  uint64_t device_begin_ = UINT64_MAX, device_end_ = 0;  // of all allocations that there ever were
  size_t allocated_ = 0;
  std::map<std::string, std::shared_ptr<LoadedModule>> replacements_;
};

// True for functions of CUDA 13.0 that are there only to say that they are missing.
bool is_missing(std::string_view name);

}  // namespace ptxemu::exec
