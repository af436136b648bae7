// Packed calls of prompts and decoding, of which Hopper makes two launches side by side: the
// oracle's answer for sequences on both sides of the line between them.
#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "backends.h"
#include "table.h"

namespace fa4::internal {
namespace {

constexpr int64_t kGroup = 4;

// Of so many queries: `most` are few, one more is not.
Case mixed(int32_t most) {
  Case c;
  ProblemDesc& d = c.desc;
  d.heads_q = 2 * kGroup;
  d.heads_kv = 2;
  d.head_dim = 64;
  d.causal = true;
  pack(c, {1, 130, 0, most, most + 1, 70, 1, 2}, {200, 300, 40, most, 290, 70, 0, 129});
  c.seed = 57;
  return c;
}

void put_in_cache(Case& c, int64_t page_size) {
  put_in_pages(c, page_size);
  c.desc.has_seqused_k = true;
  c.seqused_k = std::exchange(c.lengths_k, {});
}

class FewQueries : public BackendTest {};

// On two SMs, where few rows are work enough for a launch.
void expect_right(const Case& c, int64_t most) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const Reference reference = reference_forward(p, tensors.args(), 2);
  for (const Backend& backend : backends_that_take(p)) {
    SCOPED_TRACE(backend.name);
    if (!backend.is_gpu()) continue;
    const ForwardPlan plan = plan_forward(p, with_sms(backend, 2).device.spec);
    EXPECT_EQ(plan.few.has_value(), backend.device.spec.architecture == "sm_90a");
    EXPECT_EQ(plan.few ? plan.few->most : most, most);
    expect_accurate(p, tensors.args(), reference, run_plan(backend, plan, tensors.args()));
  }
}

// On all SMs; how many ran.
int expect_parts(const Case& c) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const Reference reference = reference_forward(p, tensors.args(), 2);
  int ran = 0;
  for (const Backend& backend : backends_that_take(p)) {
    if (backend.device.spec.architecture != "sm_90a") continue;
    SCOPED_TRACE(backend.name);
    const ForwardPlan plan = plan_forward(p, backend.device.spec);
    EXPECT_TRUE(plan.few && tiling_of(plan.few->spec).parts.are_cut());
    expect_accurate(p, tensors.args(), reference, run_plan(backend, plan, tensors.args()));
    ++ran;
  }
  return ran;
}

const std::pair<const char*, std::function<void(Case&)>> kVariants[] = {
    {"causal", [](Case&) {}},
    {"no mask", [](Case& c) { c.desc.causal = false; }},
    {"window",
     [](Case& c) {
       c.desc.window = {100, 3};
     }},
    {"sink", [](Case& c) { c.desc.has_sink = true; }},
    {"queries in use",
     [](Case& c) {
       c.desc.has_seqused_q = true;
       c.seqused_q = {0, 100, 0, 2, 3, 1, 1, 2};
     }},
    {"pages of 16", [](Case& c) { put_in_cache(c, 16); }},
    {"pages of 1", [](Case& c) { put_in_cache(c, 1); }},
    {"decoding alone",
     [](Case& c) {
       pack(c, {1, 1, 1}, {200, 0, 129});
       c.desc.seqlen_q = 100;
     }},
    {"prompts alone",
     [](Case& c) {
       pack(c, {100, 101, 90}, {900, 120, 129});
     }},
    {"many sequences",
     [](Case& c) {
       std::vector<int32_t> queries(140, 1), keys(140, 30);
       queries[70] = 80, keys[70] = 140;
       pack(c, queries, keys);
     }},
};

TEST_F(FewQueries, OfSixteenBits) {
  for (const auto& [name, change] : kVariants) {
    for (const int64_t head_dim : {64, 128}) {
      SCOPED_TRACE(testing::Message() << name << ", " << head_dim);
      Case c = mixed(16);
      c.desc.head_dim = c.desc.head_dim_v = head_dim;
      change(c);
      expect_right(c, 16);
    }
  }
}

// Of few tiles, whose keys are cut: parts go to the workspace where the first launch has many SMs
// for so many sequences, else to a cluster.
TEST_F(FewQueries, InPartsOfKeys) {
  int ran = 0;
  for (const auto& [name, change] : kVariants) {
    if (std::string_view(name) == "window") continue;  // too few keys to be worth it
    for (const bool bytes : {false, true}) {
      for (const int64_t sequences : {8, 2}) {
        SCOPED_TRACE(testing::Message() << name << ", " << bytes << ", " << sequences);
        Case c = mixed(bytes ? 4 : 16);
        std::vector<int32_t> queries = c.lengths_q, keys = {1700, 200, 40, 16, 290, 70, 0, 1500};
        queries.resize(static_cast<size_t>(sequences));
        keys.resize(static_cast<size_t>(sequences));
        pack(c, queries, keys);
        change(c);
        if (c.lengths_q.size() != queries.size()) continue;  // other lengths
        if (bytes) quantise(c.desc, 0, Descales::kContiguous);
        ran += expect_parts(c);
      }
    }
  }
  EXPECT_GE(ran, 10);
}

// Contiguous and in pages; with descales of blocks the main launch is of the same kernel.
TEST_F(FewQueries, OfBytes) {
  for (const auto& [name, change] : kVariants) {
    for (const int64_t descale_block : {int64_t{0}, kDescaleBlock}) {
      SCOPED_TRACE(testing::Message() << name << ", " << descale_block);
      Case c = mixed(4);
      change(c);
      quantise(c.desc, descale_block, Descales::kContiguous);
      expect_right(c, 4);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
