#include "emulator/isa/lanes.h"

#include <algorithm>
#include <atomic>

namespace ptxemu {
namespace {

VectorLevel level_of_host() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  return avx2 && avx512 ? VectorLevel::kAvx512 : avx2 ? VectorLevel::kAvx2 : VectorLevel::kBase;
#else
  return VectorLevel::kBase;
#endif
}

std::atomic<VectorLevel> limit{VectorLevel::kAvx512};

}  // namespace

VectorLevel vector_level() {
  static const VectorLevel host = level_of_host();
  return std::min(host, limit.load(std::memory_order_relaxed));
}

void limit_vector_level(VectorLevel most) { limit.store(most, std::memory_order_relaxed); }

}  // namespace ptxemu
