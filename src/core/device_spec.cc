#include "core/device_spec.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "core/config.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace fa4::internal {
namespace {

#if defined(__x86_64__)

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros for a leaf that the processor does not have.
Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool bit(uint32_t word, int index) { return (word >> index) & 1u; }

// The register states that the operating system saves; 0 when it cannot be asked.
__attribute__((target("xsave"))) uint64_t saved_states(bool has_osxsave) {
  return has_osxsave ? _xgetbv(0) : 0;
}

// Asks the kernel for tile data (arch_prctl ARCH_REQ_XCOMP_PERM, Linux 5.16). For the whole
// process, threads of later included; older kernels refuse.
bool request_tile_permission() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures detect_features() {
  constexpr uint64_t kYmmStates = 0x6;       // SSE, AVX
  constexpr uint64_t kZmmStates = 0xe6;      // and opmask, both halves of ZMM
  constexpr uint64_t kTileStates = 0x60000;  // tile configuration and data
  const Registers leaf1 = cpuid(1, 0);
  const Registers leaf7 = cpuid(7, 0);
  const Registers leaf7_1 = leaf7.eax >= 1 ? cpuid(7, 1) : Registers{};
  const uint64_t states = saved_states(bit(leaf1.ecx, 27));
  const bool has_ymm = (states & kYmmStates) == kYmmStates;
  const bool has_zmm = (states & kZmmStates) == kZmmStates;

  CpuFeatures f;
  f.avx2 = has_ymm && bit(leaf1.ecx, 28) && bit(leaf7.ebx, 5) && bit(leaf1.ecx, 12) &&
           bit(leaf1.ecx, 29);
  f.avx512 = f.avx2 && has_zmm && bit(leaf7.ebx, 16) && bit(leaf7.ebx, 17) && bit(leaf7.ebx, 30) &&
             bit(leaf7.ebx, 31);
  f.avx512_bf16 = f.avx512 && bit(leaf7_1.eax, 5);
  f.avx512_vbmi = f.avx512 && bit(leaf7.ecx, 1);
  f.avx512_fp16 = f.avx512 && bit(leaf7.edx, 23);
  f.amx_bf16 = f.avx512 && bit(leaf7.edx, 24) && bit(leaf7.edx, 22) &&
               (states & kTileStates) == kTileStates && request_tile_permission();
  return f;
}

std::string detect_model() {
  if (cpuid(0x80000000u, 0).eax < 0x80000004u) return "x86_64";
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002u + i, 0);
    std::memcpy(text + 16 * i, &r, 16);
  }
  std::string model = text;
  model.erase(0, model.find_first_not_of(' '));
  model.erase(model.find_last_not_of(' ') + 1);
  return model;
}

constexpr const char* kArchitecture = "x86_64";

#else

CpuFeatures detect_features() { return {}; }
std::string detect_model() { return "cpu"; }
constexpr const char* kArchitecture = "generic";

#endif

// Hardware threads that this process may run on.
int usable_threads() {
  for (size_t words = 16; words <= 4096; words *= 4) {  // up to 262144 processors
    std::vector<unsigned long> mask(words, 0);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    const size_t bytes = words * sizeof(unsigned long);
    if (sched_getaffinity(0, bytes, set) == 0) return std::max(1, CPU_COUNT_S(bytes, set));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

DeviceSpec detect_cpu() {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCpu;
  spec.name = "cpu";
  spec.model = detect_model();
  spec.architecture = kArchitecture;
  spec.num_threads = config().num_threads > 0 ? config().num_threads : usable_threads();
  spec.cpu = detect_features();
  return spec;
}

}  // namespace

const DeviceSpec& host_cpu_spec() {
  // Outlives every static object that may use it.
  static const DeviceSpec* const kSpec = new DeviceSpec(detect_cpu());
  return *kSpec;
}

DeviceSpec h200_spec() {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCuda;
  spec.name = "h200";
  spec.model = "NVIDIA H200";
  spec.architecture = "sm_90a";
  spec.num_sms = 132;
  spec.l2_bytes = 62914560;
  spec.memory_bandwidth = 2 * 3201e6 * 6144 / 8;  // as its driver has it
  spec.smem_per_block_bytes = 232448;
  return spec;
}

std::vector<DeviceSpec> emulated_specs() {
  DeviceSpec h200 = h200_spec();
  h200.kind = DeviceKind::kEmulated;
  h200.name = "emulated:h200";
  h200.num_threads = 0;
  DeviceSpec b200 = h200;
  b200.name = "emulated:b200";
  b200.model = "NVIDIA B200";
  b200.architecture = "sm_100a";
  b200.num_sms = 148;
  b200.l2_bytes = 132120576;
  b200.memory_bandwidth = 8e12;
  return {h200, b200};
}

}  // namespace fa4::internal
