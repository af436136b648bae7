#include "ptxemu/exec/driver_entry.h"

#include <dlfcn.h>

#include <string>
#include <utility>

#include "ptxemu/exec/gpu.h"

namespace ptxemu::exec {

void* driver_entry(const char* name, uint64_t cuda_version) {
  static void* const self = [] {
    Dl_info info{};
    ::dladdr(reinterpret_cast<void*>(&driver_entry), &info);
    return ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  // Some functions of the driver have another shape since these versions of CUDA.
  static constexpr std::pair<const char*, uint64_t> kSuffixes[] = {
      {"_v4", 12050}, {"_v3", 12030}, {"_v2", 0}, {"", 0}};
  for (const auto& [suffix, since] : kSuffixes) {
    if (cuda_version < since) continue;
    const std::string version = std::string(name) + suffix;
    void* found = is_missing(version) ? nullptr : ::dlsym(self, version.c_str());
    if (found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace ptxemu::exec
