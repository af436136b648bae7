#include "verify/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/device_spec.h"
#include "plan/backward_plan.h"

namespace fa4::internal {
namespace {

std::map<std::string, int> count_options(const std::vector<Case>& cases, const DeviceSpec& device) {
  std::map<std::string, int> counts;
  for (const Case& c : cases) {
    const AttentionProblem p = AttentionProblem::make(c.desc);
    if (!query_support(p, device).supported) {
      ++counts["skipped"];
      continue;
    }
    ++counts["ran"];
    counts["causal"] += p.causal;
    counts["window"] += !p.window.is_full();
    counts["softcap"] += p.softcap != 0;
    counts["gqa"] += p.heads_kv > 1 && p.heads_q > p.heads_kv;
    counts["mqa"] += p.heads_kv == 1 && p.heads_q > 1;
    counts["varlen"] += p.layout_q == Layout::kPacked;
    counts["seqused"] += p.has_seqused_k;
    counts["seqused_q"] += p.has_seqused_q;
    counts["negative scale"] += p.scale < 0;
    counts["sink"] += p.has_sink;
    counts["lse"] += c.wants_lse;
    counts["differing head_dim_v"] += p.head_dim != p.head_dim_v;
    ++counts[std::string(name_of(p.dtype))];
    const int64_t d = std::max(p.head_dim, p.head_dim_v);
    ++counts[d <= 64 ? "d64" : d <= 96 ? "d96" : d <= 128 ? "d128" : d <= 192 ? "d192" : "d256"];
    counts["long"] += std::max(p.seqlen_q, p.seqlen_k) > 1024;
    if (device.kind != DeviceKind::kCpu) {
      const ForwardPlan plan = plan_forward(p, device);
      // Two variants of each kernel take pages, of which there are few cases.
      const bool paged = p.layout_kv == Layout::kPaged;
      ++counts[paged ? "paged" : p.is_quantised() ? "bytes" : "kernel " + kernel_name(plan)];
      counts["two launches"] += plan.few.has_value();
    }
  }
  return counts;
}

bool is_in(const KernelSource& kernel, const char* folder) {
  return kernel.main_file.find(folder) != std::string::npos;
}
// Those of bytes and of pages are many variants for few cases: Quantised.* and Pages.*
// (tests/conformance) run each.
bool is_forward(const KernelSource& kernel) {
  const bool reads_pages = kernel.display_name.find("_page") != std::string::npos;
  const bool reads_bytes = kernel.display_name.find("_e4m3_") != std::string::npos;
  return is_in(kernel, "forward/") && !reads_bytes && !reads_pages;
}

// docs/cli.md says them.
TEST(Cases, SuitesHaveTheirSizes) {
  EXPECT_EQ(make_suite(Suite::kQuick, 0).size(), 206u);
  EXPECT_EQ(make_suite(Suite::kFull, 0).size(), 5956u);
}

TEST(Cases, TheFullSuiteCoversAGpu) {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    const std::map<std::string, int> counts =
        count_options(make_suite(Suite::kFull, seed), h200_spec());
    EXPECT_GE(counts.at("ran"), 2000);
    EXPECT_GE(5 * counts.at("long"), counts.at("ran"));
    EXPECT_GE(counts.at("two launches"), 20);
    std::map<std::string, int>
        of_shape;  // CTAs in pairs have that of CTAs apart, as out in f32 has
    for (const auto& [name, count] : counts) {
      const size_t pair = name.find("_pair");
      if (pair != std::string::npos) {
        EXPECT_GE(count, 3) << name << " seed " << seed;
      }
      std::string shape = name.substr(0, pair);
      if (const size_t end = shape.find("_out_f32"); end != std::string::npos) shape.resize(end);
      of_shape[shape] += count;
    }
    for (const auto& [name, count] : of_shape) {
      // Parts of keys are those of few rows.
      const bool has_parts = name.find("_parts") != std::string::npos;
      const bool is_kernel =
          name.starts_with("kernel ") || name == "bytes" || name == "two launches";
      const int least = has_parts ? 4 : is_kernel ? 20 : 100;
      EXPECT_GE(count, least) << name << " seed " << seed;
    }
    for (const auto& [kernel, smem_bytes] : prebuilt_kernels("sm_90a")) {
      if (!is_forward(kernel)) continue;
      EXPECT_TRUE(counts.contains("kernel " + kernel.display_name)) << kernel.display_name;
    }
  }
}

TEST(Cases, TheFullSuiteCoversBlackwell) {
  const DeviceSpec b200 = emulated_specs().back();
  std::map<std::string, int> of_seeds;
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    for (const auto& [name, count] : count_options(make_suite(Suite::kFull, seed), b200)) {
      of_seeds[name] += count;
    }
  }
  EXPECT_GE(of_seeds["ran"], 6 * 1000);
  EXPECT_GE(5 * of_seeds["long"], of_seeds["ran"]);
  for (const auto& [kernel, smem_bytes] : prebuilt_kernels(b200.architecture)) {
    if (!is_forward(kernel)) continue;
    // Most of what one tile held is cut into parts; few cases have an out in f32.
    const bool is_rare = kernel.display_name.find("_out_f32") != std::string::npos;
    EXPECT_GE(of_seeds["kernel " + kernel.display_name], is_rare ? 10 : 6 * 8)
        << kernel.display_name;
  }
}

TEST(Cases, TheFullSuiteCoversTheCpu) {
  const std::vector<Case> cases = make_suite(Suite::kFull, 0);
  const std::map<std::string, int> counts = count_options(cases, host_cpu_spec());
  EXPECT_FALSE(counts.contains("skipped"));
  EXPECT_GE(counts.at("f32"), 100);
  EXPECT_GE(5 * counts.at("long"), counts.at("ran"));
  const auto paged = std::count_if(
      cases.begin(), cases.end(), [](const Case& c) { return c.desc.layout_kv == Layout::kPaged; });
  EXPECT_GE(paged, 100);
}

TEST(Cases, TheFullBackwardSuiteLaunchesEveryBackwardKernel) {
  for (const DeviceSpec& device : emulated_specs()) {
    std::set<std::string> launched;
    for (const Case& c : make_backward_suite(Suite::kFull, 0)) {
      const AttentionProblem p = AttentionProblem::make(c.desc);
      if (!query_backward_support(p, device).supported) continue;
      for (const KernelStep& step : plan_backward(p, device).steps) {
        launched.insert(step.source.display_name);
      }
    }
    for (const auto& [kernel, smem_bytes] : prebuilt_kernels(device.architecture)) {
      if (!is_in(kernel, "backward/")) continue;
      EXPECT_TRUE(launched.contains(kernel.display_name)) << kernel.display_name;
    }
  }
}

TEST(Cases, TheFullBackwardSuiteCoversTheCpu) {
  const std::vector<Case> cases = make_backward_suite(Suite::kFull, 0);
  EXPECT_EQ(cases.size(), 1300u);
  EXPECT_EQ(make_backward_suite(Suite::kQuick, 0).size(), 104u);
  std::map<std::string, int> counts = count_options(cases, host_cpu_spec());
  for (const Case& c : cases) {
    const AttentionProblem p = AttentionProblem::make(c.desc);
    EXPECT_TRUE(query_backward_support(p, host_cpu_spec()).supported);
    counts["dlse"] += p.has_dlse;
    counts["deterministic"] += p.deterministic;
    counts["grad f32"] += p.dtype != DType::kF32 && p.grad_dtype == DType::kF32;
  }
  EXPECT_FALSE(counts.contains("skipped"));
  for (const auto& [name, count] : counts) EXPECT_GE(count, 100) << name;
}

TEST(Cases, TheOriginalsPairsAreThere) {
  std::set<std::pair<int64_t, int64_t>> seen;
  for (const Case& c : make_suite(Suite::kFull, 0)) seen.insert({c.desc.seqlen_q, c.desc.seqlen_k});
  for (const auto& pair : std::initializer_list<std::pair<int64_t, int64_t>>{
           {1, 1},     {3, 3},     {64, 32},     {64, 1},      {239, 1},     {799, 3},
           {113, 203}, {113, 128}, {128, 217},   {113, 211},   {108, 256},   {255, 256},
           {384, 256}, {640, 128}, {1023, 1024}, {1024, 1023}, {4096, 4096}, {4224, 4224},
           {1, 339},   {3, 799},   {64, 800}}) {
    EXPECT_TRUE(seen.contains(pair)) << pair.first << "x" << pair.second;
  }
}

TEST(Cases, TheSeedDecides) {
  const std::vector<Case> a = make_suite(Suite::kQuick, 7), b = make_suite(Suite::kQuick, 7),
                          c = make_suite(Suite::kQuick, 8);
  ASSERT_EQ(a.size(), b.size());
  size_t differing = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].seed, b[i].seed);
    EXPECT_EQ(a[i].desc.seqlen_q, b[i].desc.seqlen_q);
    differing += a[i].seed != c[i].seed;
  }
  EXPECT_EQ(differing, a.size());
}

TEST(Cases, WhatBelongsToNoSequenceIsNan) {
  Case c;
  c.desc.dtype = DType::kF32;
  c.desc.batch = 1;
  c.desc.seqlen_q = 3;
  c.desc.seqlen_k = 5;
  c.desc.heads_q = c.desc.heads_kv = 1;
  c.desc.head_dim = 8;
  c.desc.has_seqused_k = true;
  c.seqused_k = {2};
  const CaseTensors tensors(c);
  const float* v = static_cast<const float*>(tensors.args().v);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(v[i]), i >= 16) << i;
  const float* q = static_cast<const float*>(tensors.args().q);
  for (int i = 0; i < 24; ++i) EXPECT_FALSE(std::isnan(q[i])) << i;
}

}  // namespace
}  // namespace fa4::internal
