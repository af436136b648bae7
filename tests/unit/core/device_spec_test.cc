#include "core/device_spec.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace fa4::internal {
namespace {

// The kernel's own list of what the first processor has and the system enables.
std::set<std::string> cpuinfo_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

TEST(HostCpu, FeaturesAgreeWithTheKernel) {
  const std::set<std::string> flags = cpuinfo_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  const CpuFeatures& cpu = host_cpu_spec().cpu;
  const auto has = [&](const char* flag) { return flags.count(flag) != 0; };
  EXPECT_EQ(cpu.avx2, has("avx2") && has("fma") && has("f16c"));
  EXPECT_EQ(cpu.avx512,
            cpu.avx2 && has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl"));
  EXPECT_EQ(cpu.avx512_bf16, cpu.avx512 && has("avx512_bf16"));
  EXPECT_EQ(cpu.avx512_fp16, cpu.avx512 && has("avx512_fp16"));
  if (!has("amx_bf16")) {
    EXPECT_FALSE(cpu.amx_bf16);
  }
}

TEST(HostCpu, ThreadsAreThoseOfTheAffinityMask) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(host_cpu_spec().num_threads, CPU_COUNT(&set));
  EXPECT_EQ(host_cpu_spec().name, "cpu");
  EXPECT_FALSE(host_cpu_spec().model.empty());
  EXPECT_EQ(&host_cpu_spec(), &host_cpu_spec());
}

TEST(H200, IsTheDataSheet) {
  const DeviceSpec spec = h200_spec();
  EXPECT_EQ(spec.kind, DeviceKind::kCuda);
  EXPECT_EQ(spec.architecture, "sm_90a");
  EXPECT_EQ(spec.num_sms, 132);
  EXPECT_EQ(spec.l2_bytes, 60u << 20);
  EXPECT_EQ(spec.smem_per_block_bytes, 227u << 10);
}

}  // namespace
}  // namespace fa4::internal
