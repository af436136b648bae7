// The ceiling: what is counted, and what a measurement leaves behind. How much of instructions x
// width x clock it reaches depends on who else uses the core; `fa4 bench` prints it.
#include "cpu/peak.h"

#include <gtest/gtest.h>

#include <sched.h>

#include "core/device_spec.h"
#include "cpu/isa/peak_loops.h"

namespace fa4::internal {
namespace {

class CpuPeakTest : public testing::TestWithParam<CpuIsa> {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuPeakTest,
                         testing::Values(CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16,
                                         CpuIsa::kAmxBf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(CpuPeakTest, NamesItsInstructionAndSeesAClock) {
  if (!has_isa(host_cpu_spec().cpu, GetParam())) {
    GTEST_SKIP() << "this machine has no " << name_of(GetParam());
  }
  const CpuPeak peak = measure_cpu_peak(GetParam(), 0.02);
  EXPECT_FALSE(peak.instruction.empty());
  EXPECT_GT(peak.flops_per_second, 0);
  EXPECT_GT(peak.clock_hz, 0);
  EXPECT_GT(peak.expected_flops_per_second, peak.clock_hz);  // many FLOPs a cycle
}

// A ceiling is the products of a round over time; the time is the machine's, the products are ours.
TEST(CpuPeakLoops, ExecuteTheProductsThatTheyAreCountedFor) {
  struct Row {
    CpuIsa isa;
    PeakLoop loop;
    double products;  // of one lane in a round
  };
  constexpr Row kRows[] = {{CpuIsa::kAvx2, peak_loop_avx2, 96},
                           {CpuIsa::kAvx512, peak_loop_avx512, 192},
                           {CpuIsa::kAvx512Bf16, peak_loop_avx512_bf16, 2 * 192}};
  constexpr double kProduct = 0x1p-20;  // factors of 2^-10; as floats 0.2 % more each
  constexpr int kRounds = 1 << 10;
  bool ran = false;
  for (const Row& row : kRows) {
    if (!has_isa(host_cpu_spec().cpu, row.isa)) continue;
    ran = true;
    for (const int rounds : {2, kRounds}) {
      EXPECT_NEAR(row.loop(rounds) / (rounds * kProduct * row.products), 1, 0.005)
          << name_of(row.isa) << ", " << rounds << " rounds";
    }
  }
  if (!ran) GTEST_SKIP() << "this machine has no avx2";
}

TEST(CpuPeakLoops, TilesAddUpNumbers) {
  if (!has_isa(host_cpu_spec().cpu, CpuIsa::kAmxBf16)) GTEST_SKIP() << "this machine has no amx";
  const float once = peak_loop_amx(1);
  EXPECT_NE(once, 0);
  EXPECT_NEAR(peak_loop_amx(64) / once, 64, 0.01);
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
