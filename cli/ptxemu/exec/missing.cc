// Calls of runtime and driver that the emulated libraries lack: each names itself and fails, and
// who asks for one by name is told that there is none.
#include <algorithm>
#include <string_view>

#include "ptxemu/exec/gpu.h"

#define MISSING(name)                                            \
  extern "C" __attribute__((visibility("default"))) int name() { \
    return ptxemu::exec::Gpu::missing(#name);                    \
  }
#include "ptxemu/exec/missing_names.inc"
#undef MISSING

namespace ptxemu::exec {

bool is_missing(std::string_view name) {
#define MISSING(name) #name,
  static constexpr std::string_view kNames[] = {
#include "ptxemu/exec/missing_names.inc"
  };
#undef MISSING
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace ptxemu::exec
