// Packed calls of prompts and decoding, of which a GPU makes two launches side by side: the
// oracle's answer for sequences on both sides of the line between them.
#include <gtest/gtest.h>

#include <iterator>
#include <string_view>
#include <tuple>
#include <utility>

#include "backends.h"
#include "table.h"

namespace fa4::internal {
namespace {

constexpr int64_t kGroup = 4;

// Of so many queries: `most` are few, one more is not; nor, on Blackwell, 33 of 16 bits.
Case mixed(int32_t most) {
  Case c;
  ProblemDesc& d = c.desc;
  d.heads_q = 2 * kGroup;
  d.heads_kv = 2;
  d.head_dim = 64;
  d.causal = true;
  pack(c, {1, 130, 0, most, most + 1, 70, 1, 2 * most, 33},
       {200, 300, 40, most, 290, 70, 0, 129, 90});
  c.seed = 57;
  return c;
}

void put_in_cache(Case& c, int64_t page_size) {
  put_in_pages(c, page_size);
  c.desc.has_seqused_k = true;
  c.seqused_k = std::exchange(c.lengths_k, {});
}

class FewQueries : public BackendTest {};

// On so many SMs, 0: all; whether keys of few queries are cut there.
void expect_right(const Case& c, int sms, bool are_cut) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const Reference reference = reference_forward(p, tensors.args(), 2);
  for (const Backend& backend : backends_that_take(p)) {
    if (!backend.is_gpu()) continue;
    SCOPED_TRACE(backend.name);
    const Backend on = sms > 0 ? with_sms(backend, sms) : backend;
    const ForwardPlan plan = plan_forward(p, on.device.spec);
    ASSERT_TRUE(plan.few);
    EXPECT_EQ(tiling_of(plan.few->spec).parts.are_cut(), are_cut);
    expect_accurate(p, tensors.args(), reference, run_plan(backend, plan, tensors.args()));
  }
}
// On two SMs few rows are work enough for a launch; on all of them few tiles have their keys cut.
void expect_whole(const Case& c) { expect_right(c, 2, false); }
void expect_parts(const Case& c) { expect_right(c, 0, true); }

const std::pair<const char*, std::function<void(Case&)>> kVariants[] = {
    {"causal", [](Case&) {}},
    {"no mask", [](Case& c) { c.desc.causal = false; }},
    {"window",
     [](Case& c) {
       c.desc.window = {100, 3};
     }},
    {"sink", [](Case& c) { c.desc.has_sink = true; }},
    {"softcap", [](Case& c) { c.desc.softcap = 3; }},
    {"queries in use",
     [](Case& c) {
       c.desc.has_seqused_q = true;
       c.seqused_q = {0, 100, 0, 2, 3, 1, 1, 2, 33};
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
  constexpr std::pair<int64_t, int64_t> kHeadDims[] = {{128, 128}, {64, 64},   {256, 256},
                                                       {96, 96},   {192, 128}, {192, 192}};
  int index = 0;
  for (const auto& [name, change] : kVariants) {
    Case c = mixed(16);
    std::tie(c.desc.head_dim, c.desc.head_dim_v) = kHeadDims[index++ % std::size(kHeadDims)];
    SCOPED_TRACE(testing::Message() << name << ", head_dim " << c.desc.head_dim);
    change(c);
    expect_whole(c);
  }
}

// Of few tiles, whose keys are cut: parts go to the workspace where the first launch has many SMs
// for so many sequences, else to a cluster.
TEST_F(FewQueries, InPartsOfKeys) {
  int index = 0;
  for (const auto& [name, change] : kVariants) {
    if (std::string_view(name) == "window") continue;  // too few keys to be worth it
    for (const size_t sequences : {9, 2}) {
      const bool bytes = ++index % 4 >= 2;
      SCOPED_TRACE(testing::Message() << name << ", " << bytes << ", " << sequences);
      Case c = mixed(bytes ? 4 : 16);
      std::vector<int32_t> queries = c.lengths_q, keys = {1700, 200, 40, 16, 290, 70, 0, 1500, 90};
      queries.resize(sequences);
      keys.resize(sequences);
      pack(c, queries, keys);
      change(c);
      if (c.lengths_q.size() != sequences) continue;  // other lengths
      if (bytes) quantise(c.desc, 0, Descales::kContiguous);
      expect_parts(c);
    }
  }
}

// What a draft proposes, of few sequences of many: the main launch has few tiles too.
TEST_F(FewQueries, OfADraft) {
  for (const int32_t queries : {3, 1}) {
    Case c = mixed(2);
    c.desc.heads_q = 8;
    c.desc.heads_kv = 1;
    c.desc.head_dim = c.desc.head_dim_v = 128;
    std::vector<int32_t> of_each(64, queries == 3 ? 0 : 1), keys(64, 40);
    std::fill_n(of_each.begin(), queries == 3 ? 22 : 1, 3);
    keys[0] = 1024;
    pack(c, of_each, keys);
    c.desc.total_q = 67;
    put_in_cache(c, 16);
    quantise(c.desc, 0, Descales::kContiguous);
    expect_right(c, 0, false);
  }
}

// Contiguous and in pages; with descales of blocks the main launch is of the same kernel.
TEST_F(FewQueries, OfBytes) {
  int index = 0;
  for (const auto& [name, change] : kVariants) {
    SCOPED_TRACE(name);
    Case c = mixed(4);
    change(c);
    quantise(c.desc, ++index % 2 == 0 ? kDescaleBlock : 0, Descales::kContiguous);
    expect_whole(c);
  }
}

}  // namespace
}  // namespace fa4::internal
