#include "plan/few_queries.h"

#include <gtest/gtest.h>

#include "kernels/output/traits.h"
#include "problems.h"

namespace fa4::internal {
namespace {

const DeviceSpec kB200 = emulated_specs().back();

// What an engine sends at one step: 64 sequences that decode over 8192 keys, a prompt of 2048.
ProblemDesc step() {
  ProblemDesc d = dense(128, 8192, true);
  d.batch = 65;
  d.heads_q = 64;
  d.heads_kv = 8;
  d = in_pages(d);
  d.layout_q = Layout::kPacked;
  d.seqlen_q = 2048;
  d.total_q = 64 + 2048;
  return d;
}

ForwardPlan plan_of(const ProblemDesc& desc, const DeviceSpec& device = h200_spec()) {
  return plan_forward(AttentionProblem::make(desc), device);
}
bool makes_two_launches(const ProblemDesc& desc, const DeviceSpec& device = h200_spec()) {
  return plan_of(desc, device).few.has_value();
}

TEST(FewQueriesPlan, TheLaunchOfFewComesFirst) {
  const ForwardPlan plan = plan_of(step());
  ASSERT_TRUE(plan.few);
  EXPECT_EQ(plan.few->most, 8);  // of eight heads: 64 rows
  ASSERT_EQ(plan.steps.size(), 2);
  EXPECT_EQ(plan.steps[1].source.display_name, kernel_name(plan));
  const GpuTiling few = tiling_of(plan.few->spec), main = tiling_of(plan.main);
  EXPECT_EQ(few.shape.tile_m, 64);
  EXPECT_LT(few.schedule.grid, main.schedule.grid);
  EXPECT_EQ(plan.steps[0].grid, few.schedule.grid);
}

TEST(FewQueriesPlan, OfBytesAsManyAsATileOf16Rows) {
  ProblemDesc d = step();
  d.kv_dtype = DType::kE4M3;
  EXPECT_EQ(plan_of(d).few->most, 2);
  d.heads_kv = 2;  // 32 rows a query
  EXPECT_EQ(plan_of(d).few->most, 2);
  d.heads_kv = 64;
  EXPECT_EQ(plan_of(d).few->most, 16);
  d.head_dim = d.head_dim_v = 256;  // where both launches are of one kernel
  EXPECT_EQ(plan_of(d).few->most, 16);
}

TEST(FewQueriesPlan, OfEveryHeadDimension) {
  for (const int64_t head_dim : {64, 96, 128, 192, 256}) {
    for (const float softcap : {0.0F, 30.0F}) {
      ProblemDesc d = step();
      d.head_dim = d.head_dim_v = head_dim;
      d.softcap = softcap;
      const ForwardPlan plan = plan_of(d);
      ASSERT_TRUE(plan.few) << head_dim;
      EXPECT_EQ(plan.few->most, 8);
      EXPECT_EQ(tiling_of(plan.few->spec).shape.tile_m, 64);
      EXPECT_EQ(plan.steps.size(), 2);
    }
  }
}

// A tile of few rows has 128 there, and every head dimension has one.
TEST(FewQueriesPlan, OnBlackwell) {
  for (const int64_t head_dim : {64, 96, 128, 192, 256}) {
    ProblemDesc d = step();
    d.head_dim = d.head_dim_v = head_dim;
    d.softcap = head_dim == 256 ? 30 : 0;
    const ForwardPlan plan = plan_of(d, kB200);
    ASSERT_TRUE(plan.few) << head_dim;
    EXPECT_EQ(plan.few->most, 16);
    EXPECT_EQ(tiling_of(plan.few->spec).shape.tile_m, 128);
    EXPECT_LT(plan.steps[0].grid, kB200.num_sms);
  }
  ProblemDesc bytes = step();
  bytes.kv_dtype = DType::kE4M3;
  const ForwardPlan plan = plan_of(bytes, kB200);
  EXPECT_EQ(plan.few->most, 2);
  EXPECT_EQ(tiling_of(plan.few->spec).shape.tile_m, 16);
  EXPECT_EQ(tiling_of(plan.main).shape.tile_m, 64);
}

TEST(FewQueriesPlan, WhereOneLaunchTakesAll) {
  EXPECT_TRUE(makes_two_launches(step()));
  EXPECT_TRUE(makes_two_launches(step(), kB200));
  const auto changed = [](auto change) {
    ProblemDesc d = step();
    change(d);
    return d;
  };
  for (const ProblemDesc& d : {
           changed([](ProblemDesc& p) {  // prompts alone
             p.layout_kv = Layout::kPacked;
             p.page_size = p.num_pages = p.pages_per_seq = 0;
             p.total_k = p.total_q;
           }),
           changed([](ProblemDesc& p) { p.total_q = p.batch * p.seqlen_q; }),  // all as long
           changed([](ProblemDesc& p) { p.seqlen_q = 8, p.total_q = 100; }),   // decoding alone
           changed([](ProblemDesc& p) { p.batch = 1; }),
           changed([](ProblemDesc& p) { p.split_keys = 1024; }),
           changed([](ProblemDesc& p) { p.num_splits = 2; }),
           changed([](ProblemDesc& p) { p.out_dtype = DType::kF32; }),
           changed([](ProblemDesc& p) { p.sm_margin = 20; }),
           changed([](ProblemDesc& p) {  // too little work for a launch
             p.batch = 3, p.total_q = 302, p.seqlen_q = 300, p.seqlen_k = 500;
             p = in_pages(p);
           }),
           changed([](ProblemDesc& p) { p.heads_kv = 1, p.heads_q = 128; }),  // 128 rows a query
       }) {
    EXPECT_FALSE(makes_two_launches(d)) << explain(plan_of(d)).front().choice;
  }
}

// So many that tiles of decoding are whole rounds: 512 in five, beside more prompts in seven; 128
// in one.
TEST(FewQueriesPlan, SmsOfFew) {
  const auto ctas = [](const ProblemDesc& d) { return plan_of(d).steps[0].grid; };
  ProblemDesc d = step(), bytes = d, by_rows = d;
  bytes.kv_dtype = DType::kE4M3;
  by_rows.page_size = 1;
  by_rows.pages_per_seq = by_rows.seqlen_k;
  EXPECT_EQ(ctas(d), 103);
  EXPECT_EQ(ctas(bytes), 86);
  EXPECT_EQ(ctas(by_rows), 128);
  ProblemDesc capped = d;
  capped.softcap = 30;
  EXPECT_EQ(ctas(capped), 132);
  EXPECT_LT(plan_of(capped, kB200).steps[0].grid, kB200.num_sms);
  capped.head_dim = capped.head_dim_v = 256;
  EXPECT_EQ(ctas(capped), 103);
  d.batch = 68;
  d.total_q = 64 + 4 * 2048;
  EXPECT_EQ(ctas(d), 74);
  d.batch = 17;
  d.seqlen_q = 512;
  d.total_q = 16 + 512;
  EXPECT_EQ(ctas(d), 128);
}

// As a rank of eight has them: few tiles, whose sums lie sequence by sequence.
TEST(FewQueriesPlan, KeysOfFewTilesAreCut) {
  const auto on_a_rank = [](int64_t sequences) {
    ProblemDesc d = step();
    d.batch = sequences + 1;
    d.heads_q = 8;
    d.heads_kv = 1;
    d.total_q = sequences + 2048;
    return in_pages(d);
  };
  const ForwardPlan plan = plan_of(on_a_rank(16));
  ASSERT_TRUE(plan.few);
  const KeyParts parts = tiling_of(plan.few->spec).parts;
  EXPECT_TRUE(parts.are_cut());
  EXPECT_EQ(parts.cluster, 1);
  ASSERT_EQ(plan.steps.size(), 3);
  EXPECT_EQ(plan.steps[1].source.display_name, kernel_name(plan));
  EXPECT_EQ(plan.steps[2].source.display_name, "combine_bf16_x1");
  const size_t rows = 17 * 8 * 8;  // sequences, queries, heads
  EXPECT_EQ(plan.workspace.find(kPartStats)->bytes, rows * parts.most * kPartStatsBytes);

  ProblemDesc d =
      on_a_rank(255);  // any of which may decode, so that each would have room for parts
  d.seqlen_q = 64;
  d.total_q = 256 * 64 - 1;
  EXPECT_EQ(plan_of(d).workspace.find(kPartSums), nullptr);
  d = on_a_rank(16);
  d.num_splits = 1;
  EXPECT_FALSE(tiling_of(plan_of(d).few->spec).parts.are_cut());
  const ForwardPlan in_clusters = plan_of(on_a_rank(2));  // all of them run at once
  EXPECT_GT(tiling_of(in_clusters.few->spec).parts.cluster, 1);
  EXPECT_EQ(in_clusters.steps.size(), 2);
}

// As many queries as a draft proposes, of few sequences at a time: the main launch has few tiles
// too, and all keys of each.
TEST(FewQueriesPlan, TheMainLaunchHasAllKeys) {
  int two = 0;
  for (const DeviceSpec& device : {h200_spec(), kB200}) {
    for (const DType kv_dtype : {DType::kBF16, DType::kE4M3}) {
      for (const int64_t seqlen_q : {3, 5, 17, 20}) {
        for (const int64_t seqlen_k : {600, 1024, 1500, 4096}) {
          ProblemDesc d = step();
          const int64_t batch = seqlen_k == 4096 ? 200 : 64;
          d.kv_dtype = kv_dtype;
          d.heads_q = 8;
          d.heads_kv = 1;
          d.batch = batch;
          d.seqlen_q = seqlen_q;
          d.seqlen_k = seqlen_k;
          d.total_q = batch + seqlen_q;
          const ForwardPlan plan = plan_of(in_pages(d), device);
          if (!plan.few) continue;
          ++two;
          const GpuTiling main = tiling_of(plan.main);
          EXPECT_FALSE(main.parts.are_cut()) << seqlen_q << " x " << seqlen_k;
          EXPECT_NE(main.schedule.source, TileSource::kByLength) << "of all sequences, few too";
          EXPECT_EQ(plan.workspace.find(kPartSums) != nullptr, plan.steps.size() == 3);
        }
      }
    }
  }
  EXPECT_GT(two, 20);
}

// Each counts its tiles with a number of its own.
TEST(FewQueriesPlan, CountersOfBoth) {
  ProblemDesc d = step();
  d.batch = 300;  // more than are ranked
  d.total_q = 2400;
  const ForwardPlan plan = plan_of(d);
  ASSERT_TRUE(plan.few);
  EXPECT_EQ(tiling_of(plan.few->spec).schedule.source, TileSource::kCounter);
  EXPECT_EQ(plan.workspace.find(kTileCounter)->bytes, 2 * sizeof(uint32_t));
  EXPECT_TRUE(plan.workspace.find(kTileCounter)->zeroed);
}

}  // namespace
}  // namespace fa4::internal
