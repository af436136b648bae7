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

PlanStep step_of(const ForwardPlan& plan, const std::string& what) {
  for (const PlanStep& step : explain(plan)) {
    if (step.what == what) return step;
  }
  return {};
}
std::string why(const ForwardPlan& plan, const std::string& what) {
  return step_of(plan, what).why;
}

// Keys of packed sequences and seqused_k make tiles differ where neither mask nor queries do.
TEST(Schedule, SequencesOfDifferentLengthsGoOnDemand) {
  const ProblemDesc even = dense(128, 4096);
  ProblemDesc packed_k = even;
  packed_k.layout_kv = Layout::kPacked;
  packed_k.total_k = 4 * 4096;
  ProblemDesc used = even;
  used.has_seqused_k = true;
  for (const bool blackwell : {false, true}) {
    const DeviceSpec device = blackwell ? emulated_specs().back() : h200_spec();
    const auto plan_of = [&](const ProblemDesc& desc) {
      return plan_forward(AttentionProblem::make(desc), device);
    };
    EXPECT_EQ(gpu_tiling(plan_of(even))->schedule.source, TileSource::kStride);
    EXPECT_EQ(why(plan_of(even), "order"), "all tiles are equally long");
    for (const ProblemDesc& desc : {packed_k, used}) {
      const ForwardPlan plan = plan_of(desc);
      EXPECT_EQ(gpu_tiling(plan)->schedule.source,
                blackwell ? TileSource::kLaunchControl : TileSource::kCounter);
      EXPECT_EQ(why(plan, "order"), "which sequences are long is in device memory");
    }
  }
}

// A CTA's place is counted over the sequences as they come: only within one of them are the longest
// tiles first, unless the device ranks them.
TEST(Schedule, TilesOfPackedSequencesGoInTheBatchsOrder) {
  ProblemDesc desc = dense(128, 2048, true);
  ProblemDesc packed = desc;
  packed.layout_q = packed.layout_kv = Layout::kPacked;
  packed.total_q = packed.total_k = packed.batch * packed.seqlen_q;
  ProblemDesc alone = packed;
  alone.batch = 1;
  for (const DeviceSpec& device : {h200_spec(), emulated_specs().back()}) {
    const auto order = [&](const ProblemDesc& of) {
      return step_of(plan_forward(AttentionProblem::make(of), device), "order").choice;
    };
    EXPECT_EQ(order(desc), "longest tiles first");
    EXPECT_EQ(order(packed), "longest tiles of each sequence first, in the batch's order");
    EXPECT_EQ(order(alone), "longest tiles first");
  }
}

// Else the second is never built ahead of time.
TEST(PrebuiltKernels, VariantsOfOneNameAreTwoKernels) {
  Sm90ForwardSpec hopper;
  Sm100ForwardSpec blackwell;
  std::vector<PrebuiltKernel> kernels;
  const auto add = [&](const auto& spec) { add_once({spec.source(), 0}, &kernels); };
  add(hopper);
  hopper.traits.q_slots = 5;
  add(hopper);
  hopper.traits.kv_stages = 3;
  add(hopper);
  EXPECT_EQ(kernels.size(), 3u);
  add(blackwell);
  blackwell.traits.kv_stages = 4;
  add(blackwell);
  blackwell.traits.p_parts = {{64, 128}};
  add(blackwell);
  EXPECT_EQ(kernels.size(), 6u);
  add(hopper);
  add(blackwell);
  EXPECT_EQ(kernels.size(), 6u) << "these were there";
}

}  // namespace
}  // namespace fa4::internal
