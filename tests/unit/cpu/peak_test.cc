// The measured ceiling agrees with instructions x width x measured clock.
#include "cpu/peak.h"

#include <gtest/gtest.h>

#include <sched.h>

#include "core/device_spec.h"

namespace fa4::internal {
namespace {

class CpuPeakTest : public testing::TestWithParam<CpuIsa> {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuPeakTest,
                         testing::Values(CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16,
                                         CpuIsa::kAmxBf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(CpuPeakTest, IsWhatTheClockAllows) {
  if (!has_isa(host_cpu_spec().cpu, GetParam())) {
    GTEST_SKIP() << "this machine has no " << name_of(GetParam());
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's code is not what is timed";
#endif
  // Another program may hold the core for a whole slice: the best of a few.
  double best = 0;
  for (int i = 0; i < 10 && best < 0.9; ++i) {
    const CpuPeak peak = measure_cpu_peak(GetParam(), 0.05);
    EXPECT_FALSE(peak.instruction.empty());
    EXPECT_GT(peak.clock_hz, 5e8);
    best = peak.flops_per_second / peak.expected_flops_per_second;
  }
  EXPECT_GE(best, 0.9);
  EXPECT_LE(best, 1.1);
}

TEST(CpuPeakOfPools, ThreadsAddUpAndStayUnpinned) {
  if (!has_isa(host_cpu_spec().cpu, CpuIsa::kAvx2)) GTEST_SKIP() << "this machine has no avx2";
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof before, &before);
  ThreadPool pool(2);
  const CpuPeak peak = measure_cpu_peak(CpuIsa::kAvx2, pool, 0.02);
  EXPECT_GT(peak.flops_per_second, 0);
  sched_getaffinity(0, sizeof after, &after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(CpuPeakOfPools, PathsWithoutAMatrixInstructionHaveNone) {
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAmxModel}) {
    EXPECT_EQ(measure_cpu_peak(isa, 0.01).flops_per_second, 0);
    EXPECT_TRUE(measure_cpu_peak(isa, 0.01).instruction.empty());
  }
}

}  // namespace
}  // namespace fa4::internal
