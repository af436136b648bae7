#include "device/cuda/driver_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/config.h"

namespace fa4::internal {
namespace {

struct Driver {
  DriverApi api;
  std::string problem;  // empty: usable

  Driver() {
    if (open_driver(config().cuda_driver_path, api, problem)) start_driver(api, problem);
  }
};

const Driver& driver() {
  static const Driver* const kDriver = new Driver;  // outlives every static object that may use it
  return *kDriver;
}

}  // namespace

bool open_driver(const std::string& path, DriverApi& api, std::string& problem) {
  const std::string file = path.empty() ? "libcuda.so.1" : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    problem = fmt::format("no CUDA driver ({}) on this machine", file);
    return false;
  }
  const char* missing = nullptr;
#define FA4_RESOLVE(member, symbol, parameters)                                 \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library, #symbol)); \
  if (api.member == nullptr) missing = #symbol;
  FA4_DRIVER_FUNCTIONS(FA4_RESOLVE)
#undef FA4_RESOLVE
  if (missing == nullptr) return true;
  problem = fmt::format("the CUDA driver ({}) is too old: it has no {}", file, missing);
  return false;
}

bool start_driver(const DriverApi& api, std::string& problem) {
  const CuResult result = api.init(0);
  if (result == kCuSuccess) return true;
  if (result == kCuNoDevice) {
    problem =
        "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES hides those that it does not name)";
    return false;
  }
  const char* name = nullptr;
  if (api.error_name(result, &name) != kCuSuccess || name == nullptr) name = "unknown error";
  problem = fmt::format("the CUDA driver does not start: cuInit: {}", name);
  return false;
}

const DriverApi* driver_api() { return driver().problem.empty() ? &driver().api : nullptr; }

const std::string& driver_problem() { return driver().problem; }

}  // namespace fa4::internal
