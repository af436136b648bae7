// Into how many subgroups the backward cuts the group of query heads of a key head.
#include "plan/subgroups.h"

#include <gtest/gtest.h>

#include "plan/backward_plan.h"
#include "plan/sm90_plan.h"
#include "problems.h"

namespace fa4::internal {
namespace {

struct Shape {
  int64_t batch, seqlen, heads_q, heads_kv;
  bool causal;
  int64_t head_dim = 128;
};

ProblemDesc desc_of(const Shape& s) {
  ProblemDesc d = dense(s.head_dim, s.seqlen, s.causal);
  d.batch = s.batch;
  d.heads_q = s.heads_q;
  d.heads_kv = s.heads_kv;
  return d;
}
BackwardPlan plan_of(const ProblemDesc& desc) {
  return plan_backward(AttentionProblem::make(desc), h200_spec());
}
int subgroups(const ProblemDesc& desc) {
  return std::get<Sm90BackwardSpec>(plan_of(desc).main).subgroups;
}
int subgroups(const Shape& s) { return subgroups(desc_of(s)); }

// The fastest of those that were measured, or within 3 % of it
// (docs/kernels/bwd_sm90_order.md, "Groups cut anew").
TEST(Subgroups, AreThoseThatWereFastest) {
  EXPECT_EQ(subgroups({1, 8192, 8, 1, true}), 4);
  EXPECT_EQ(subgroups({1, 4096, 8, 1, true}), 8);
  EXPECT_EQ(subgroups({1, 8192, 8, 1, false}), 2);
  EXPECT_EQ(subgroups({1, 2048, 8, 1, false}), 8);
  EXPECT_EQ(subgroups({1, 8192, 16, 2, true}), 4);
  EXPECT_EQ(subgroups({2, 1024, 16, 2, true}), 8);
  EXPECT_EQ(subgroups({1, 4096, 28, 4, true}), 7);
  EXPECT_EQ(subgroups({1, 4096, 40, 8, true}), 5);
  EXPECT_EQ(subgroups({1, 4096, 32, 8, true}), 2);
  EXPECT_EQ(subgroups({1, 1024, 32, 8, true}), 4);
  EXPECT_EQ(subgroups({8, 1024, 32, 8, true}), 2);
  EXPECT_EQ(subgroups({16, 512, 32, 8, true}), 2);
  EXPECT_EQ(subgroups({8, 2048, 32, 8, true}), 2);
  EXPECT_EQ(subgroups({8, 2048, 32, 8, false}), 1);
  EXPECT_EQ(subgroups({2, 8192, 32, 8, true}), 2);
  EXPECT_EQ(subgroups({8, 1024, 64, 8, true}), 4);
  EXPECT_EQ(subgroups({16, 512, 64, 8, true}), 4);
  EXPECT_EQ(subgroups({1, 4096, 64, 8, true}), 4);
  EXPECT_EQ(subgroups({4, 8192, 64, 8, true}), 4);
  EXPECT_EQ(subgroups({1, 4096, 64, 8, false}), 1);
  EXPECT_EQ(subgroups({4, 1024, 64, 8, false}), 1);
  EXPECT_EQ(subgroups({1, 4096, 96, 8, true}), 6);
  EXPECT_EQ(subgroups({1, 4096, 128, 8, true}), 8);
}

// Wider heads come apart further, since their rows have more bytes.
TEST(Subgroups, OfOtherHeadDims) {
  EXPECT_EQ(subgroups({1, 4096, 64, 8, true, 64}), 4);
  EXPECT_EQ(subgroups({2, 8192, 32, 8, true, 64}), 2);
  EXPECT_EQ(subgroups({16, 512, 32, 8, true, 64}), 1);
  EXPECT_EQ(subgroups({8, 2048, 32, 8, true, 64}), 1);
  EXPECT_EQ(subgroups({1, 4096, 32, 8, true, 192}), 4);
  EXPECT_EQ(subgroups({1, 4096, 32, 4, true, 256}), 8);
  EXPECT_EQ(subgroups({1, 8192, 16, 2, true, 256}), 8);
  EXPECT_EQ(subgroups({8, 1024, 32, 8, true, 256}), 2);
  EXPECT_EQ(subgroups({8, 1024, 32, 8, true, 192}), 2);
}

// Whose works are all as long, so that only idle SMs count.
TEST(Subgroups, OfAWindow) {
  const auto with_window = [](const Shape& s, int64_t window) {
    ProblemDesc desc = desc_of(s);
    desc.window = {window, 0};
    return subgroups(desc);
  };
  EXPECT_EQ(with_window({1, 16384, 64, 8, true}, 1024), 2);  // 0.976 of whole ones' rate
  EXPECT_EQ(with_window({1, 8192, 64, 8, true, 64}, 128), 1);
  EXPECT_EQ(with_window({1, 8192, 8, 1, true}, 1024), 2);
}

TEST(Subgroups, DivideTheGroupAndOneHeadHasNone) {
  EXPECT_EQ(subgroups({1, 256, 4, 4, true}), 1);
  for (const int64_t group : {2, 3, 5, 6, 12}) {
    for (const int64_t seqlen : {0, 1, 100, 3000, 1 << 20}) {
      const int n = subgroups({1, seqlen, group, 1, true});
      EXPECT_EQ(group % n, 0) << group << ", " << seqlen;
    }
  }
}

// A sequence has the same gradients alone, packed, beside others, behind a longer maximum.
TEST(Subgroups, OfADeterministicOneFollowFromItsHeadsAndMaskAlone) {
  for (const bool causal : {false, true}) {
    for (const auto& [heads_kv, of_full] : {std::pair{8, 1}, {4, 1}, {2, 4}, {1, 8}}) {
      for (const int64_t batch : {1, 3, 64}) {
        for (const int64_t seqlen : {1, 500, 8192}) {
          ProblemDesc desc = desc_of({batch, seqlen, 8 * heads_kv, heads_kv, causal});
          desc.deterministic = true;
          EXPECT_EQ(subgroups(desc), !causal ? of_full : heads_kv == 1 ? 8 : 4);
          desc.layout_q = desc.layout_kv = Layout::kPacked;
          desc.total_q = desc.total_k = 2 * seqlen;
          EXPECT_EQ(subgroups(desc), !causal ? of_full : heads_kv == 1 ? 8 : 4);
        }
      }
    }
  }
}

// Under a causal mask two heads each, of few columns four; of works in two kinds one. Or fewer,
// that divide the group.
TEST(Subgroups, OfADeterministicOneHaveFewHeads) {
  const auto heads = [](int64_t group, int head_dim, int64_t heads_kv = 8) {
    ProblemDesc desc = desc_of({1, 1000, heads_kv * group, heads_kv, true, head_dim});
    desc.deterministic = true;
    return group / subgroups(desc);
  };
  EXPECT_EQ(heads(8, 128), 2);
  EXPECT_EQ(heads(7, 128), 1);
  EXPECT_EQ(heads(6, 96), 2);
  EXPECT_EQ(heads(12, 64), 4);
  EXPECT_EQ(heads(6, 64), 3);
  EXPECT_EQ(heads(2, 64), 2);
  EXPECT_EQ(heads(8, 192), 1);
  EXPECT_EQ(heads(8, 64, 1), 1) << "of eight heads each is a subgroup";
  EXPECT_EQ(heads(8, 64, 2), 2);
  EXPECT_EQ(heads(2, 128, 1), 1);
}

// They are works and CTAs of their own, of which a launch has fewer than 2^31.
TEST(Subgroups, TooManyAreRefused) {
  ProblemDesc desc = desc_of({1 << 10, 1, 1 << 16, 1, true});
  desc.seqlen_k = 1 << 20;
  const Support support = query_backward_support(AttentionProblem::make(desc), h200_spec());
  EXPECT_FALSE(support.supported);
  EXPECT_EQ(support.reason,
            "batch 1024 with heads_q 65536 and seqlen_q 1, heads_kv 1 and seqlen_k 1048576; "
            "accepted on a GPU: below 2^31 - 2^20 blocks of 64 queries of all heads, and as many "
            "blocks of 128 keys, each counted 2 * (heads_q / heads_kv) times");
  // 2^64 blocks of the longest keys, though packed ones are few.
  desc = desc_of({1 << 26, 1 << 29, 1 << 16, 1 << 16, true});
  desc.layout_q = desc.layout_kv = Layout::kPacked;
  desc.seqlen_q = 0;
  desc.total_k = 2;
  EXPECT_FALSE(query_backward_support(AttentionProblem::make(desc), h200_spec()).supported);
}

// A step of a server may have no sequences.
TEST(Subgroups, OfNoPackedSequences) {
  ProblemDesc desc = desc_of({0, 4096, 64, 8, true});
  desc.layout_q = desc.layout_kv = Layout::kPacked;
  desc.total_q = desc.total_k = 5000;
  EXPECT_EQ(subgroups(desc), 1);
}

// They meet at one place a block of keys; deterministic, in pairs.
TEST(Subgroups, HavePlacesInTheWorkspace) {
  constexpr size_t kBlocks = 4096 / 128 * 8, kBlockBytes = 128 * (128 + 128) * 4;
  ProblemDesc desc = desc_of({1, 4096, 64, 8, true});
  const BackwardPlan cut = plan_of(desc);
  EXPECT_EQ(cut.workspace.find(kGroupSums)->bytes, kBlocks * kBlockBytes);
  EXPECT_EQ(cut.workspace.find(kGroupCounts)->bytes,
            kBlocks * kSubgroupUnits * sizeof(SubgroupCounts));
  desc.deterministic = true;
  EXPECT_EQ(plan_of(desc).workspace.find(kGroupSums)->bytes, 3 * kBlocks * kBlockBytes);
  desc.causal = false;
  const BackwardPlan whole = plan_of(desc);
  EXPECT_EQ(whole.workspace.find(kGroupSums), nullptr);
  EXPECT_EQ(whole.workspace.find(kGroupCounts), nullptr);
}

// Each packed sequence begins with a block of its own.
TEST(Subgroups, OfPackedSequencesHavePlacesForTheirRowsAlone) {
  ProblemDesc desc = desc_of({6, 4096, 64, 8, true});
  desc.layout_q = desc.layout_kv = Layout::kPacked;
  desc.total_q = desc.total_k = 5000;
  desc.deterministic = true;
  EXPECT_EQ(plan_of(desc).workspace.find(kGroupSums)->bytes,
            size_t{(5000 / 128 + 6) * 8} * 3 * 128 * (128 + 128) * 4);
}

}  // namespace
}  // namespace fa4::internal
