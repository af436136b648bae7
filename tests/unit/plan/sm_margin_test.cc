// SMs that a problem leaves to other work.
#include <gtest/gtest.h>

#include "plan/backward_plan.h"
#include "plan/gpu_plan.h"
#include "problems.h"

namespace fa4::internal {
namespace {

const DeviceSpec kB200 = emulated_specs().back();

ProblemDesc with_margin(ProblemDesc desc, int64_t margin) {
  desc.sm_margin = margin;
  return desc;
}
ForwardPlan forward_of(const ProblemDesc& desc, const DeviceSpec& device) {
  return plan_forward(AttentionProblem::make(desc), device);
}
BackwardPlan backward_of(const ProblemDesc& desc, const DeviceSpec& device) {
  return plan_backward(AttentionProblem::make(desc), device);
}

// One query a sequence: keys are cut for all SMs.
ProblemDesc decoding(int64_t batch, int64_t seqlen_k) {
  ProblemDesc d = dense(128, seqlen_k);
  d.batch = batch;
  d.seqlen_q = 1;
  d.heads_kv = 4;
  return d;
}

TEST(SmMargin, AForwardHasNoMoreCtasThanSmsAreLeft) {
  ProblemDesc packed = dense(128);
  packed.layout_q = packed.layout_kv = Layout::kPacked;
  packed.total_q = packed.total_k = 4 * 4096;
  for (const DeviceSpec& device : {h200_spec(), kB200}) {
    for (const ProblemDesc& d : {dense(128), dense(128, 4096, true), dense(64), dense(256), packed,
                                 in_pages(dense(128)), decoding(1, 8192), decoding(64, 8192)}) {
      for (const int margin : {1, 20, 131, 1000}) {
        const int left = std::max(device.num_sms - margin, 2);
        const ForwardPlan plan = forward_of(with_margin(d, margin), device);
        EXPECT_LE(plan.steps.front().grid, left) << kernel_name(plan);
        EXPECT_GE(plan.steps.front().grid, left / 2) << kernel_name(plan);
      }
    }
  }
}

TEST(SmMargin, TilesAreHandedOutWithoutLaunchControl) {
  const ProblemDesc d = dense(128, 8192, true);
  const auto source = [&](int64_t margin) {
    return gpu_tiling(forward_of(with_margin(d, margin), kB200))->schedule.source;
  };
  EXPECT_EQ(source(0), TileSource::kLaunchControl);
  EXPECT_EQ(source(8), TileSource::kCounter);
}

// Deterministic bits follow from none of what a margin changes: how heads are cut and which way
// they go decide on the order of sums.
TEST(SmMargin, OnHopperABackwardHasFewerCtas) {
  for (const int64_t seqlen : {2048, 8192}) {
    for (const bool causal : {false, true}) {
      ProblemDesc d = dense(128, seqlen, causal);
      d.heads_kv = 4;
      EXPECT_EQ(backward_of(with_margin(d, 20), h200_spec()).steps[kBackward].grid, 112);
      d.deterministic = true;
      const BackwardTiling all = *backward_tiling(backward_of(d, h200_spec()));
      const BackwardTiling few = *backward_tiling(backward_of(with_margin(d, 120), h200_spec()));
      EXPECT_EQ(few.shape.persistent_ctas, 12);
      EXPECT_EQ(few.shape.subgroups, all.shape.subgroups);
      EXPECT_EQ(few.order.heads_down, all.order.heads_down);
      EXPECT_EQ(few.order.last_keys_first, all.order.last_keys_first);
      EXPECT_EQ(few.order.heads_together, all.order.heads_together);
      EXPECT_EQ(few.order.first_stores, all.order.first_stores);
    }
  }
}

TEST(SmMargin, OnBlackwellABackwardSaysThatItChangesNothing) {
  const ProblemDesc d = dense(128, 2048, true);
  const BackwardPlan plan = backward_of(with_margin(d, 20), kB200);
  EXPECT_EQ(plan.steps[kBackward].grid, backward_of(d, kB200).steps[kBackward].grid);
  const std::vector<PlanStep> steps = explain(plan);
  const auto said = std::find_if(steps.begin(), steps.end(),
                                 [](const PlanStep& step) { return step.what == "sms"; });
  ASSERT_NE(said, steps.end());
  EXPECT_EQ(said->choice, "all");
}

}  // namespace
}  // namespace fa4::internal
