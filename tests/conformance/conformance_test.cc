// One table of problems, every backend: the same answers within the same bounds.
#include <gtest/gtest.h>

#include "plan/forward_plan.h"
#include "table.h"

namespace fa4::internal {

const std::vector<Backend>& tested_backends() {
  static const std::vector<Backend> kBackends = all_backends();
  return kBackends;
}

namespace {

TEST(Conformance, EveryBackendMatchesTheOracle) {
  for (const Row& row : conformance_rows()) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      EXPECT_GT(expect_answers(row, dtype, tested_backends()), 0);
    }
  }
}

// What a backend refuses, it refuses with a reason; only the CPU runs everything.
TEST(Conformance, WhatIsNotSupportedSaysWhy) {
  for (const Row& row : conformance_rows()) {
    const AttentionProblem p = AttentionProblem::make(make_row(row, DType::kF32).desc);
    EXPECT_TRUE(query_support(p, host_cpu_spec()).supported) << row.name;
    for (const DeviceSpec& device : emulated_specs()) {
      const Support gpu = query_support(p, device);
      EXPECT_FALSE(gpu.supported) << row.name;
      EXPECT_NE(gpu.reason.find("accepted"), std::string::npos) << gpu.reason;
    }
  }
}

}  // namespace
}  // namespace fa4::internal
