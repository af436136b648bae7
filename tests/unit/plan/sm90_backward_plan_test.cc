#include "plan/sm90_backward_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "kernels/geometry/query_range.h"
#include "plan/backward_plan.h"
#include "plan/sm90_backward_tuning.h"
#include "problems.h"

namespace fa4::internal {
namespace {

std::string refusal(const ProblemDesc& desc) {
  return query_backward_support(AttentionProblem::make(desc), h200_spec()).reason;
}

TEST(Sm90Backward, EveryRowCanBeBuilt) {
  for (const Sm90BackwardRow& row : sm90_backward_rows()) {
    const char* reason = sm90::bwd::why_not(traits_of(row, Element::kF16, false));
    EXPECT_EQ(reason, nullptr) << "head_dim " << row.head_dim << ": " << reason;
    EXPECT_STRNE(row.reason, "");
  }
}

TEST(Sm90Backward, RegistersOfAllWarpgroupsAreThoseOfAnSm) {
  for (const Sm90BackwardRow& row : sm90_backward_rows()) {
    const sm90::bwd::RegisterSplit r =
        sm90::bwd::register_split(traits_of(row, Element::kBF16, false));
    EXPECT_EQ(r.load_and_reduce % 8 + r.math % 8 + r.dq % 8, 0);
    EXPECT_EQ(r.load_and_reduce + sm90::bwd::kMathWarpgroups * r.math + r.dq, 512) << row.head_dim;
  }
}

TEST(Sm90Backward, AVariantThatDoesNotFitIsNamed) {
  sm90::BwdTraits t;
  t.stages = 4;
  EXPECT_STREQ(sm90::bwd::why_not(t),
               "dO has as many stages as Q; or fewer where dk and dv are split");
  t.dout_stages = 4;
  EXPECT_STREQ(sm90::bwd::why_not(t), "shared memory exceeds 227 KiB");
  t = {.head_dim = 192, .head_dim_v = 128, .dout_stages = 1, .dv_stages = 1, .split = true};
  EXPECT_STREQ(sm90::bwd::why_not(t),
               "works for dv, where there are some, have as many stages as the others or more");
  t.dv_stages = 3;
  EXPECT_STREQ(sm90::bwd::why_not(t),
               "what works for dv have more of stages does not fit the place of V");
  t = {.head_dim = 192, .head_dim_v = 128, .stages = 2, .split = false};
  EXPECT_STREQ(sm90::bwd::why_not(t), "dK, dV, P and dP exceed the registers");
  t = {.head_dim = 96, .head_dim_v = 96, .dq_stages = 8};  // nobody would wait for the right phase
  EXPECT_STREQ(sm90::bwd::why_not(t), "dq has no more stages than barriers");
  t = {.head_dim = 64, .head_dim_v = 64, .finish_stages = 2};  // a load, a conversion, a store
  EXPECT_STREQ(
      sm90::bwd::why_not(t),
      "where works finish dq, three stages at least, of parts of 64 columns, and no split");
}

TEST(Sm90Backward, EveryHeadDimHasAKernelThatHoldsIt) {
  for (int64_t d = 8; d <= 256; d += 8) {
    for (int64_t dv = 8; dv <= 256; dv += 8) {
      for (const bool softcap : {false, true}) {
        const Sm90BackwardRow* row = find_sm90_backward(d, dv, softcap);
        ASSERT_NE(row, nullptr) << d << " " << dv;
        EXPECT_GE(row->head_dim, d);
        EXPECT_GE(row->head_dim_v, dv);
        EXPECT_EQ(sm90::bwd::why_not(traits_of(*row, Element::kBF16, softcap)), nullptr);
      }
    }
  }
  EXPECT_EQ(find_sm90_backward(192, 128, false)->head_dim_v, 128);
  EXPECT_EQ(find_sm90_backward(264, 64, false), nullptr);
}

TEST(Sm90Backward, IsThreeLaunchesWithoutAFill) {
  ProblemDesc desc = dense(128, 1000, true);
  desc.batch = 16;
  desc.heads_kv = 8;
  const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.steps[kPreprocess].grid, 16 * 16 * 16);
  EXPECT_EQ(plan.steps[kBackward].grid, 132);
  EXPECT_EQ(plan.steps[kPostprocess].grid, 16 * 16 * 16);
  EXPECT_EQ(plan.steps[kBackward].source.name_expression,
            "fa4::bwd_sm90<fa4::sm90::BwdTraits{.element=fa4::Element::kBF16, .head_dim=128, "
            ".head_dim_v=128, .q_rows=64, .k_stages=1, .stages=2, .dout_stages=2, .dv_stages=0, "
            ".ds_stages=2, .dq_stages=4, .finish_stages=0, .split=false, .softcap=false}>");
  for (const KernelStep& step : plan.steps) EXPECT_EQ(step.params, KernelParams::kBackward);
  for (const WorkspacePart& part : plan.workspace.parts()) EXPECT_FALSE(part.zeroed) << part.name;
  EXPECT_EQ(plan.workspace.find(kDqSums)->bytes, 16u * 16 * 1024 * 128 * 4);
  EXPECT_EQ(plan.workspace.find(kDsinkParts), nullptr);
}

// The workspace grows with tokens, whatever the lengths, and holds a block more for each sequence.
TEST(Sm90Backward, PackedSequencesTakeTheRoomOfTheirRows) {
  ProblemDesc desc = dense(64, 4096);
  desc.layout_q = desc.layout_kv = Layout::kPacked;
  desc.total_q = desc.total_k = 5000;
  const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
  EXPECT_EQ(plan.workspace.find(kStatisticTerms)->bytes, 16u * (79 + 4) * 64 * 16);
}

// The tensor cores take lse and delta off in parts; with softcap threads load lse in f32.
TEST(Sm90Backward, StatisticsLieAsTheMainKernelReadsThem) {
  ProblemDesc desc = dense(128, 1000);
  const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
  EXPECT_EQ(plan.steps[kPreprocess].source.display_name, "bwd_preprocess_parts_bf16");
  EXPECT_EQ(plan.workspace.find(kRowDelta), nullptr);
  desc.softcap = 30.0f;
  const BackwardPlan capped = plan_backward(AttentionProblem::make(desc), h200_spec());
  EXPECT_EQ(capped.steps[kPreprocess].source.display_name, "bwd_preprocess_part_bf16");
  EXPECT_EQ(capped.workspace.find(kRowDelta), nullptr);
  EXPECT_EQ(capped.workspace.find(kStatisticTerms)->bytes, 4u * 16 * 16 * 64 * 16);
  EXPECT_EQ(capped.workspace.find(kNegLseLog2)->bytes, 4u * 16 * 16 * 64 * 4);
}

TEST(Sm90Backward, PrebuiltKernelsHoldEveryPlannedOne) {
  std::set<std::string> prebuilt;
  for (const PrebuiltKernel& k : prebuilt_kernels("sm_90a"))
    prebuilt.insert(k.source.name_expression);
  for (int64_t d = 8; d <= 256; d += 8) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      ProblemDesc desc = dense(d);
      desc.dtype = dtype;
      desc.softcap = d % 16 == 0 ? 30.0f : 0.0f;
      for (const KernelStep& step :
           plan_backward(AttentionProblem::make(desc), h200_spec()).steps) {
        EXPECT_TRUE(prebuilt.contains(step.source.name_expression)) << step.source.display_name;
      }
    }
  }
}

const BwdOrder& order_of(const BackwardPlan& plan) {
  return std::get<Sm90BackwardSpec>(plan.main).order;
}

// Turns are taken in the order in which CTAs come to a block without waiting, where there is one.
TEST(Sm90Backward, ADeterministicPlanTakesTurns) {
  ProblemDesc desc = dense(128, 1000, true);
  desc.deterministic = true;
  BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
  EXPECT_TRUE(order_of(plan).last_keys_first);
  EXPECT_TRUE(order_of(plan).first_stores);
  EXPECT_EQ(plan.workspace.find(kDqCounts)->bytes, 4u * 16 * 16 * 4);
  EXPECT_EQ(plan.workspace.find(kTicket)->bytes, 4u);
  desc.causal = false;
  plan = plan_backward(AttentionProblem::make(desc), h200_spec());
  EXPECT_FALSE(order_of(plan).last_keys_first);
  EXPECT_TRUE(order_of(plan).first_stores);
}

// Which heads go down the queries, and so the bits of their sums, follows from a sequence's heads
// alone.
TEST(Sm90Backward, ADeterministicOrderIsThatOfASequenceAlone) {
  const auto down = [](int64_t batch, int64_t seqlen, int64_t heads, int head_dim = 128,
                       int64_t window = -1) {
    ProblemDesc desc = dense(head_dim, seqlen, true);
    desc.window.window_left = window;
    desc.batch = batch;
    desc.heads_q = desc.heads_kv = heads;
    desc.deterministic = true;
    const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
    EXPECT_TRUE(order_of(plan).last_keys_first);
    return order_of(plan).heads_down;
  };
  for (const int64_t batch : {1, 4, 64}) {
    for (const int64_t seqlen : {1, 100, 8192}) {
      EXPECT_EQ(down(batch, seqlen, 16), 8);
      EXPECT_EQ(down(batch, seqlen, 3), 1);
      EXPECT_EQ(down(batch, seqlen, 1), 0);
      EXPECT_EQ(down(batch, seqlen, 16, 128, 50), 2) << "works of one length";
      EXPECT_EQ(down(batch, seqlen, 16, 192), 2) << "works of two kinds";
    }
  }
}

// CTAs go on to the next block of keys.
TEST(Sm90Backward, PersistentCtasAreAtMostAsManyAsSms) {
  for (const int head_dim : {128, 192, 256}) {
    const BackwardPlan plan =
        plan_backward(AttentionProblem::make(dense(head_dim, 2000)), h200_spec());
    EXPECT_EQ(plan.steps[kBackward].grid, 132);
    EXPECT_EQ(plan.workspace.find(kTicket)->bytes, 4u);
  }
}

// A head's CTAs begin a turn after one another, which takes more heads where CTAs have fewer steps.
TEST(Sm90Backward, ShortDeterministicSequencesHaveMoreHeadsInFlight) {
  const auto heads_at_once = [](int64_t seqlen, bool deterministic, int64_t batch = 4) {
    ProblemDesc desc = dense(128, seqlen);
    desc.batch = batch;
    desc.deterministic = deterministic;
    const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
    return batch * 16 / order_of(plan).sections;
  };
  EXPECT_EQ(heads_at_once(8192, false), 1);
  EXPECT_EQ(heads_at_once(8192, true), 2);  // of 3: 132 SMs x 2 columns of 128 / 128 steps
  EXPECT_EQ(heads_at_once(2048, true), 8);  // of 9: sections are of equal size, or one less
  EXPECT_EQ(heads_at_once(64, true), 64);
  EXPECT_EQ(heads_at_once(4096, true, 4), 4);
  EXPECT_EQ(heads_at_once(4096, true, 1), 8) << "3.9 works an SM in all: two at once";
}

// A section of pairs has a work that goes up for each SM, but for a few: three where a step is as
// long as a turn, and one again where other heads of a group come behind.
TEST(Sm90Backward, PairsOfHeadsFillTheSms) {
  const auto pairs = [](int head_dim, int64_t seqlen, int64_t heads_kv = 16) {
    ProblemDesc desc = dense(head_dim, seqlen, true);
    desc.heads_kv = heads_kv;
    desc.deterministic = true;
    const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
    const BwdOrder& order = order_of(plan);
    return 4 * order.heads_down / order.pair_sections;  // of 4 sequences
  };
  EXPECT_EQ(pairs(128, 16384), 1);
  EXPECT_EQ(pairs(128, 8192), 2);
  EXPECT_EQ(pairs(128, 4096), 4);
  EXPECT_EQ(pairs(128, 1024), 16);
  EXPECT_EQ(pairs(64, 8192), 6);
  EXPECT_EQ(pairs(64, 8192, 4), 2) << "parts of four heads";
  EXPECT_EQ(pairs(192, 4096), 4) << "two works for each block of keys, and two an SM";
}

// Where few blocks of keys add to a block of queries, the first one stores, and under a mask all
// heads go down the queries.
TEST(Sm90Backward, TheFirstOneStoresWhereFewAdd) {
  const auto order = [](int64_t seqlen, bool causal, int64_t batch = 64, int64_t window = -1) {
    ProblemDesc desc = dense(128, seqlen, causal);
    desc.batch = batch;
    desc.window.window_left = window;
    const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
    const BwdOrder of = order_of(plan);
    EXPECT_EQ(of.first_stores != 0, plan.workspace.find(kDqCounts) != nullptr);
    EXPECT_FALSE(of.last_keys_first);
    EXPECT_EQ(of.heads_down, of.first_stores && causal ? 16 : 0);
    return of;
  };
  EXPECT_TRUE(order(512, true).first_stores);
  EXPECT_TRUE(order(8192, true).first_stores);
  EXPECT_FALSE(order(8193, true).first_stores);
  EXPECT_TRUE(order(16384, true, 2, 1024).first_stores);
  EXPECT_TRUE(order(2048, false).first_stores);
  EXPECT_FALSE(order(2049, false).first_stores);
  EXPECT_FALSE(order(1024, false, 1).first_stores) << "8 MB of zeros are in the cache";
}

// Longest first, the long works of the last section go on when others have ended: where an SM has
// few works in all, a section has two for each, of short heads one.
TEST(Sm90Backward, FewWorksMakeFewSections) {
  const auto sections = [](int head_dim, int64_t batch, int64_t seqlen) {
    ProblemDesc desc = dense(head_dim, seqlen, true);
    desc.batch = batch;
    const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), h200_spec());
    return order_of(plan).sections;
  };
  EXPECT_EQ(sections(128, 4, 2048), 8);   // 8 of 64 heads, 16 works each, for 132 SMs
  EXPECT_EQ(sections(128, 4, 3072), 6);   // 11 of 64 heads, 24 works each
  EXPECT_EQ(sections(128, 4, 8192), 22);  // 31 works an SM: a section has one for each
  EXPECT_EQ(sections(192, 2, 4096), 7);   // two works for each block of keys: 5 of 32 heads
  EXPECT_EQ(sections(128, 8, 4096), 26);  // 31 works an SM
}

// Where all add to zeros, works clear the sums of later sections: of those whose works are equal a
// section is small, so that the zeros are still in the L2 cache when they are wanted.
TEST(Sm90Backward, WorksClearTheSumsOfLaterSections) {
  const auto plan = [](int64_t seqlen, bool causal) {
    ProblemDesc desc = dense(128, seqlen, causal);
    desc.batch = 65536 / seqlen;
    return plan_backward(AttentionProblem::make(desc), h200_spec());
  };
  const BackwardPlan full = plan(4096, false), causal = plan(16384, true);
  EXPECT_EQ(order_of(full).sections, 256);   // of 16 x 16 heads
  EXPECT_EQ(order_of(causal).sections, 64);  // of 4 x 16
  EXPECT_EQ(full.workspace.find(kClearedCounts)->bytes, 4u * 256);
  EXPECT_EQ(causal.workspace.find(kClearedCounts)->bytes, 4u * 64);
  EXPECT_EQ(plan(512, true).workspace.find(kClearedCounts), nullptr);
  // As many sections as the preprocess clears, or fewer.
  EXPECT_EQ(plan_backward(AttentionProblem::make(dense(128, 64)), h200_spec())
                .workspace.find(kClearedCounts),
            nullptr);
}

TEST(Sm90Backward, WorksFinishDqWhereManyAddToIt) {
  const auto plan = [](const ProblemDesc& desc) {
    return plan_backward(AttentionProblem::make(desc), h200_spec());
  };
  const auto desc = [](int64_t seqlen, bool causal) {
    ProblemDesc made = dense(64, seqlen, causal);
    made.batch = 65536 / seqlen;
    return made;
  };
  EXPECT_EQ(order_of(plan(desc(512, false))).finish_behind, 0);
  EXPECT_GT(order_of(plan(desc(1024, false))).finish_behind, 0);
  EXPECT_EQ(order_of(plan(desc(1024, true))).finish_behind, 0);
  const BackwardPlan causal = plan(desc(2048, true));
  const BwdOrder order = order_of(causal);
  // 16 works a head: behind as many as are under way on 132 SMs, and half of that.
  const int64_t works = 16 * 32 * 16 / order.sections;
  EXPECT_EQ(order.finish_behind, 3 * 132 / 2 / works + 1);
  EXPECT_EQ(causal.workspace.find(kEndedCounts)->bytes, 4u * order.sections);
  EXPECT_EQ(order_of(plan(desc(4096, false))).finish_behind, 0) << "zeros, and nobody counts";

  const auto without = [&](auto change) {
    ProblemDesc changed = desc(2048, true);
    change(changed);
    const BackwardPlan other = plan(changed);
    EXPECT_EQ(other.workspace.find(kEndedCounts), nullptr);
    EXPECT_EQ(order_of(other).finish_behind, 0);
  };
  without([](ProblemDesc& d) { d.deterministic = true; });
  without([](ProblemDesc& d) { d.grad_dtype = DType::kF32; });
  without([](ProblemDesc& d) { d.has_seqused_k = true; });
  without([](ProblemDesc& d) { d.has_seqused_q = true; });
  without([](ProblemDesc& d) { d.seqlen_q += 64; });  // whose first rows see no key
  without([](ProblemDesc& d) { d.window = {1024, 0}; });
  without([](ProblemDesc& d) { d.softcap = 8; });
  without([](ProblemDesc& d) { d.head_dim = d.head_dim_v = 128; });
  without([](ProblemDesc& d) { d.batch = 1; });  // too few sections
}

TEST(Sm90Backward, RefusalsNameTheArgument) {
  ProblemDesc desc = dense(128);
  desc.dq = {4096 * 2052, 2052, 128};
  EXPECT_EQ(
      refusal(desc),
      "seqlen stride 2052 of dq is 4104 bytes; accepted on a GPU: multiples of 16 bytes from 0 "
      "to 2^40");
  desc.grad_dtype = DType::kF32;
  EXPECT_EQ(refusal(desc), "");
}

// A key's rows are those whose keys hold it.
TEST(QueryBounds, AreTheKeyBoundsTheOtherWayRound) {
  for (const auto& [left, right] : {std::pair{1000, 1000}, {1000, 0}, {3, 0}, {0, 2}, {5, 7}}) {
    for (const auto& [sq, sk] : {std::pair{10, 10}, {6, 13}, {13, 6}, {1, 9}, {9, 1}}) {
      for (int key = 0; key < sk + 4; ++key) {
        const QueryBounds rows = query_bounds(key, sq, sk, left, right);
        for (int row = 0; row < sq; ++row) {
          const KeyBounds keys = key_bounds(row + sk - sq, sk, left, right);
          EXPECT_EQ(rows.begin <= row && row < rows.end, keys.begin <= key && key < keys.end)
              << "key " << key << " of " << sk << ", row " << row << " of " << sq;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
