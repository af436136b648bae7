#include "plan/steps.h"

#include <gtest/gtest.h>

#include "plan/forward_plan.h"
#include "problems.h"

namespace fa4::internal {
namespace {

TEST(WorkspaceLayout, PartsLieOneAfterAnotherAtMultiplesOf256) {
  WorkspaceLayout layout;
  EXPECT_EQ(layout.bytes(), 0u);
  layout.add("first", 1, true);
  layout.add("second", 257);
  layout.add("third", 256);
  EXPECT_EQ(layout.find("first")->offset, 0u);
  EXPECT_EQ(layout.find("second")->offset, 256u);
  EXPECT_EQ(layout.find("third")->offset, 768u);
  EXPECT_EQ(layout.bytes(), 1024u);
  EXPECT_TRUE(layout.find("first")->zeroed);
  EXPECT_FALSE(layout.find("second")->zeroed);
  EXPECT_EQ(layout.find("fourth"), nullptr);
}

TEST(Steps, AForwardIsOneLaunchOfItsKernel) {
  for (const bool causal : {false, true}) {
    const ForwardPlan plan =
        plan_forward(AttentionProblem::make(dense(128, 8192, causal)), h200_spec());
    const auto& spec = std::get<Sm90ForwardSpec>(plan.main);
    ASSERT_EQ(plan.steps.size(), 1u);
    const KernelStep& step = plan.steps[0];
    EXPECT_EQ(step.source.name_expression, spec.source().name_expression);
    EXPECT_EQ(step.params, KernelParams::kForward);
    EXPECT_EQ(step.grid, spec.schedule.grid);
    EXPECT_EQ(step.threads, spec.shape().threads);
    EXPECT_EQ(step.cluster, spec.shape().cluster);
    EXPECT_EQ(step.smem_bytes, spec.shape().smem_bytes);
    const WorkspacePart* counter = plan.workspace.find(kTileCounter);
    ASSERT_EQ(counter != nullptr, spec.schedule.source == TileSource::kCounter);
    EXPECT_EQ(counter != nullptr, causal);
    if (counter != nullptr) {
      EXPECT_TRUE(counter->zeroed);
    }
  }
}

TEST(Steps, TheCpuLaunchesNothing) {
  const ForwardPlan plan = plan_forward(AttentionProblem::make(dense(128, 1024)), host_cpu_spec());
  EXPECT_TRUE(plan.steps.empty());
  EXPECT_EQ(plan.workspace.bytes(),
            cpu_workspace_bytes(plan.problem, std::get<CpuKernelSpec>(plan.main)));
}

}  // namespace
}  // namespace fa4::internal
