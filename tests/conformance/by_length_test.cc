// Tiles that a GPU ranks by the keys of their sequences: the oracle's answer, and the bits of the
// same call on so many SMs that nothing is ranked.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "backends.h"
#include "table.h"

namespace fa4::internal {
namespace {

constexpr int64_t kMostKeys = 300;

// Up to 300 keys each, two heads: some with none, some with as many as others, some of whole parts.
std::vector<int32_t> draw_lengths(int64_t batch, uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < batch; ++b) {
    constexpr int32_t kOften[] = {0, 1, 128, 256};
    const uint32_t drawn = draw();
    const bool often = drawn % 4 == 0;
    lengths.push_back(often ? kOften[drawn / 4 % 4]
                            : static_cast<int32_t>(drawn / 4 % (kMostKeys + 1)));
  }
  return lengths;
}

Case decode(int64_t batch) {
  Case c;
  ProblemDesc& d = c.desc;
  d.batch = batch;
  d.heads_q = 4;
  d.heads_kv = 2;
  d.seqlen_q = 1;
  d.seqlen_k = kMostKeys;
  d.head_dim = 64;
  d.has_seqused_k = true;
  d.num_splits = 1;
  c.seqused_k = draw_lengths(batch, static_cast<uint32_t>(batch));
  c.seed = 91;
  return c;
}

void cut_keys(Case& c) {
  c.desc.num_splits = 0;
  c.desc.split_keys = 128;
}

bool ranks(const ForwardPlan& plan) {
  return gpu_tiling(plan)->schedule.source == TileSource::kByLength;
}

// On two SMs, where all GPUs but those that `takes` leaves out rank.
template <class Takes>
void expect_right(const Case& c, const Takes& takes) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const Reference reference = reference_forward(p, tensors.args(), 2);
  for (const Backend& backend : backends_that_take(p)) {
    if (!backend.is_gpu() || !takes(backend.device.spec)) continue;
    SCOPED_TRACE(backend.name);
    const int enough = static_cast<int>(p.batch * p.heads_kv * 3);
    const ForwardPlan ranked = plan_forward(p, with_sms(backend, 2).device.spec);
    const ForwardPlan apart = plan_forward(p, with_sms(backend, enough).device.spec);
    EXPECT_TRUE(ranks(ranked) && !ranks(apart));
    const Result result = run_plan(backend, ranked, tensors.args());
    expect_accurate(p, tensors.args(), reference, result);
    EXPECT_TRUE(same_bits(result, run_plan(backend, apart, tensors.args())));
  }
}

class ByLength : public BackendTest {};

const std::pair<const char*, std::function<void(Case&)>> kVariants[] = {
    {"of many lengths", [](Case&) {}},
    {"as many keys each", [](Case& c) { std::fill(c.seqused_k.begin(), c.seqused_k.end(), 200); }},
    {"no keys", [](Case& c) { std::fill(c.seqused_k.begin(), c.seqused_k.end(), 0); }},
    {"128 sequences",
     [](Case& c) {
       c.desc.batch = 128;
       c.desc.seqlen_k = 130;
       c.seqused_k = draw_lengths(128, 2);
       for (int32_t& keys : c.seqused_k) keys %= 131;
     }},
    {"a few queries, causal",
     [](Case& c) {
       c.desc.seqlen_q = 3;
       c.desc.causal = true;
     }},
    {"queries that see no key",
     [](Case& c) {
       c.desc.seqlen_q = 2;
       c.desc.window = {-1, -100, 2};
     }},
    {"queries in use",
     [](Case& c) {
       c.desc.seqlen_q = 2;
       c.desc.has_seqused_q = true;
       for (size_t b = 0; b < c.seqused_k.size(); ++b) {
         c.seqused_q.push_back(static_cast<int32_t>(b % 3));
       }
     }},
    {"packed",
     [](Case& c) {
       std::vector<int32_t> queries;
       for (size_t b = 0; b < c.seqused_k.size(); ++b) queries.push_back(b % 5 == 0 ? 0 : 1);
       pack(c, queries, c.seqused_k);
       c.desc.has_seqused_k = false;
       c.seqused_k.clear();
     }},
    {"pages of 16", [](Case& c) { put_in_pages(c, 16); }},
    {"pages of 1", [](Case& c) { put_in_pages(c, 1); }},
    {"128 columns, sinks",
     [](Case& c) {
       c.desc.head_dim = c.desc.head_dim_v = 128;
       c.desc.has_sink = true;
     }},
};

// Those of Blackwell come by launch control.
TEST_F(ByLength, WholeTiles) {
  for (const auto& [name, change] : kVariants) {
    SCOPED_TRACE(name);
    Case c = decode(37);
    change(c);
    expect_right(c, [](const DeviceSpec& device) { return device.architecture == "sm_90a"; });
  }
}

// Of so many keys that ranking is worth it.
TEST_F(ByLength, TwoRoundsOfWholeTiles) {
  Case c = decode(2);
  c.desc.seqlen_k = 1700;
  c.seqused_k = {300, 1700};
  expect_right(c, [](const DeviceSpec& device) { return device.architecture == "sm_90a"; });
}

TEST_F(ByLength, PartsOfKeys) {
  for (const auto& [name, change] : kVariants) {
    SCOPED_TRACE(name);
    Case c = decode(37);
    change(c);
    cut_keys(c);
    expect_right(c, [](const DeviceSpec&) { return true; });
  }
}

TEST_F(ByLength, PartsOfBytes) {
  for (const auto& [name, change] : kVariants) {
    SCOPED_TRACE(name);
    Case c = decode(37);
    c.desc.head_dim = c.desc.head_dim_v = 128;  // where ranks have room
    c.desc.seqlen_k = 1100;                     // parts of so many keys that ranking is worth it
    c.seqused_k.back() = 1100;
    change(c);
    if (c.desc.layout_kv == Layout::kDense) c.desc.seqlen_k = 1100;
    quantise(c.desc, 0, Descales::kContiguous);
    cut_keys(c);
    c.desc.split_keys = 1024;
    expect_right(c, [](const DeviceSpec&) { return true; });
  }
}

}  // namespace
}  // namespace fa4::internal
