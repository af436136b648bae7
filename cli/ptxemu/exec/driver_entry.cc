#include "ptxemu/exec/driver_entry.h"

#include <dlfcn.h>

#include <string>

namespace ptxemu::exec {

// The newest version of a function that this library has: NAME_v4 ... NAME_v2, else NAME.
void* driver_entry(const char* name) {
  static void* const self = [] {
    Dl_info info{};
    ::dladdr(reinterpret_cast<void*>(&driver_entry), &info);
    return ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  for (const char* suffix : {"_v4", "_v2", ""}) {
    if (void* found = ::dlsym(self, (std::string(name) + suffix).c_str())) return found;
  }
  return nullptr;
}

}  // namespace ptxemu::exec
