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
#include <string>
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
  kLaunchFailure = 719,
  kNotSupported = 801,
};

struct DeviceFacts {
  std::string name;
  uint32_t architecture = 100;  // 90
  int multiprocessors = 148;
  int l2_bytes = 0;
  uint64_t memory_bytes = 0;
};

// A module's PTX, parsed when it is first needed.
struct LoadedModule {
  std::string name;
  std::string text;
  std::string problem;  // not empty: there is no PTX, and why
  ModuleHandle handle;
};

struct KernelEntry {
  std::shared_ptr<LoadedModule> module;
  std::string name;
  std::vector<uint32_t> sizes;  // of its parameters, once known
};

struct LaunchShape {
  std::array<uint32_t, 3> grid{}, block{}, cluster{};
  uint64_t shared_bytes = 0;
};

struct Graph {
  std::vector<std::function<int()>> nodes;
};
struct Stream {
  std::shared_ptr<Graph> captured;  // not null: being captured
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
  int symbol(LoadedModule& module, const std::string& name, void** address, size_t* bytes);

  int allocate(void** pointer, size_t bytes);
  int free(void* pointer);
  bool is_device(const void* pointer);
  int copy(void* to, const void* from, size_t bytes, void* stream);
  // Fills `count` elements of `width` bytes (1, 2, 4).
  int fill(void* to, uint32_t value, size_t width, size_t count, void* stream);

  // Runs `work` now, or keeps it when the stream is being captured.
  int enqueue(void* stream, std::function<int()> work);

  // One line on standard error: "ptxemu exec: ...".
  static void say(const std::string& line);
  // Names a call that these libraries lack.
  static int missing(const char* call);
  std::string tensor_map(const TensorMapRequest& request, void* map);  // "" or what is wrong

 private:
  Gpu();
  int run(KernelEntry& kernel, const LaunchShape& shape,
          const std::vector<std::vector<std::byte>>& arguments);
  bool in_range(const void* pointer, size_t bytes);
  std::string replacement(const std::string& kernel) const;
  void log(const LaunchRequest& request, const LaunchReport& report);

  std::recursive_mutex mutex_;
  DeviceFacts facts_;
  std::unique_ptr<Machine> machine_;
  std::string ptx_folder_, log_file_;
  int sticky_ = kSuccess;
  std::map<std::string, std::shared_ptr<LoadedModule>> replacements_;
};

}  // namespace ptxemu::exec
