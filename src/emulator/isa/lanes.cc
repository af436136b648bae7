#include "emulator/isa/lanes.h"

namespace ptxemu {

VectorLevel vector_level() {
#if defined(__x86_64__)
  static const VectorLevel level = [] {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi2");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512cd");
    return avx2 && avx512 ? VectorLevel::kAvx512 : avx2 ? VectorLevel::kAvx2 : VectorLevel::kBase;
  }();
  return level;
#else
  return VectorLevel::kBase;
#endif
}

}  // namespace ptxemu
