#include "bench_rows.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "command_line.h"
#include "core/error.h"
#include "failure.h"

namespace fa4::cli {
namespace {

using fa4::internal::AttentionProblem;

std::vector<AttentionProblem> rows(std::vector<std::string> arguments) {
  CLI::App app;
  BenchAxes axes;
  Options options;
  axes.declare(options);
  give_options(options, app);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return axes.problems(Direction::kForward);
}

TEST(BenchRows, Defaults) {
  const auto all = rows({});
  ASSERT_EQ(all.size(), 4u);
  for (const AttentionProblem& p : all) {
    EXPECT_EQ(p.head_dim, 128);
    EXPECT_EQ(p.heads_q, 16);
    EXPECT_EQ(p.heads_kv, 16);
    EXPECT_EQ(p.batch * p.seqlen_q, 32768);
  }
  EXPECT_FALSE(all[0].causal);
  EXPECT_TRUE(all[2].causal);
}

TEST(BenchRows, LaterAxesFollowEarlierOnes) {
  const auto all = rows({"--head-dim", "64,256", "--seqlen", "100000", "--causal", "1"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].heads_q, 32);
  EXPECT_EQ(all[1].heads_q, 8);
  EXPECT_EQ(all[1].head_dim_v, 256);
  EXPECT_EQ(all[1].batch, 1);
  EXPECT_EQ(all[1].seqlen_k, 100000);
}

TEST(BenchRows, EveryCombination) {
  EXPECT_EQ(rows({"--head-dim", "64,96,128", "--seqlen", "64,128", "--seqlen-k", "32,64",
                  "--window", "8:0,-1", "--dtype", "f16,bf16", "--heads-q", "4", "--heads-kv",
                  "1,2", "--batch", "1,2", "--softcap", "0,20"})
                .size(),
            3u * 2 * 2 * 2 * 2 * 2 * 2 * 2 * 2);
  EXPECT_THROW(rows({"--batch", "1", "--tokens", "64"}), Failure);
  EXPECT_THROW(rows({"--heads-q", "4", "--heads-kv", "3"}), fa4::internal::Error);
}

TEST(BenchRows, FlopsCountVisiblePairs) {
  const auto all = rows({"--head-dim", "64", "--head-dim-v", "128", "--seqlen", "4", "--seqlen-k",
                         "6", "--batch", "3", "--heads-q", "2"});
  EXPECT_EQ(forward_flops(all[0]), 2.0 * 3 * 2 * 24 * 192);
  EXPECT_EQ(forward_flops(all[1]), 2.0 * 3 * 2 * (3 + 4 + 5 + 6) * 192);
}

}  // namespace
}  // namespace fa4::cli
