// prepare, execute and forward: results, workspace, plans used again for other lengths.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "small_attention.h"

namespace {

using small::Tensors;

std::string error_of(const fa4::ForwardOp& op, const fa4::ForwardArgs& args) {
  if (fa4_execute(op.get(), &args) == FA4_OK) return "accepted";
  return fa4_last_error();
}

TEST(Execute, IsAttention) {
  const fa4::Device device("cpu");
  for (const bool causal : {false, true}) {
    const fa4::Plan plan(device, small::dense_problem(2, 33, 47, causal));
    const fa4::ForwardOp op(plan);
    Tensors t(2 * 33, 2 * 47, 1);
    fa4::ForwardArgs args = t.args();
    const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
    args.workspace = workspace.get();
    args.workspace_bytes = plan.workspace_bytes();
    op.execute(args);
    for (int64_t b = 0; b < 2; ++b) {
      EXPECT_LT(small::error_of(t, b * 33, 33, b * 47, 47, causal), small::kBound);
    }
  }
}

// Keys and values as bytes, with descales of 128 keys each by strides of their own, are those that
// they stand for.
TEST(Execute, QuantisedKeysAreWhatTheyStandFor) {
  constexpr int64_t kKeys = 150, kRow = small::kHeadsKV * small::kHeadDim;
  const fa4::Device device("cpu");
  Tensors t(9, kKeys, 7);
  // (heads, blocks), one behind the other.
  const std::vector<float> k_descale{0.5f, 0.25f, 2.0f, 0.125f}, v_descale{1.0f};
  std::vector<uint8_t> k, v;
  for (int64_t i = 0; i < kKeys * kRow; ++i) {
    // e4m3 of (1 + m / 8) 2^(e - 7), e = 5, 6, 7.
    const auto of_key = static_cast<uint8_t>(40 + i * 7 % 24),
               of_value = static_cast<uint8_t>(40 + i * 5 % 24);
    const auto number = [](int bits) {
      return std::ldexp(1.0f + static_cast<float>(bits % 8) / 8, bits / 8 - 7);
    };
    const int64_t head = i / small::kHeadDim % small::kHeadsKV, block = i / kRow / 128;
    k.push_back(of_key);
    v.push_back(static_cast<uint8_t>(of_value | 0x80));
    t.k[static_cast<size_t>(i)] = number(of_key) * k_descale[static_cast<size_t>(head * 2 + block)];
    t.v[static_cast<size_t>(i)] = -number(of_value);
  }
  fa4::Problem problem = small::dense_problem(1, 9, kKeys, true);
  problem.kv_dtype = FA4_E4M3;
  problem.has_descales = 1;
  problem.descale_block = 128;
  problem.k_descale_strides[1] = 1;
  problem.k_descale_strides[2] = 2;
  fa4::ForwardArgs args = t.args();
  args.k = k.data();
  args.v = v.data();
  args.k_descale = k_descale.data();
  fa4::forward(device, problem, args);
  EXPECT_LT(small::error_of(t, 0, 9, 0, kKeys, true), small::kBound);
  args.v_descale = v_descale.data();
  const std::vector<float> before = t.out;
  fa4::forward(device, problem, args);
  EXPECT_EQ(t.out, before);
  EXPECT_EQ(fa4_query_backward_support(device.get(), &problem), FA4_NOT_SUPPORTED);
  EXPECT_STREQ(
      fa4_last_error(),
      "kv_dtype e4m3; accepted for the backward: f32 (that of q), as no gradient goes to a "
      "quantised cache");
  args.q_descale = v_descale.data();
  EXPECT_THROW(fa4::forward(device, problem, args), fa4::Error);
}

TEST(Execute, HandlesMayGoInAnyOrder) {
  auto device = std::make_unique<fa4::Device>("cpu");
  auto plan = std::make_unique<fa4::Plan>(*device, small::dense_problem(1, 9, 9, true));
  const size_t bytes = plan->workspace_bytes();
  const fa4::ForwardOp op(*plan);
  device.reset();
  plan.reset();
  Tensors t(9, 9, 2);
  fa4::ForwardArgs args = t.args();
  const small::Workspace workspace = small::workspace_of(bytes);
  args.workspace = workspace.get();
  args.workspace_bytes = bytes;
  op.execute(args);
  EXPECT_LT(small::error_of(t, 0, 9, 0, 9, true), small::kBound);
}

TEST(Execute, WorkspaceHasItsRules) {
  const fa4::Device device("cpu");
  const fa4::Plan plan(device, small::dense_problem(1, 20, 20, false));
  const fa4::ForwardOp op(plan);
  const size_t bytes = plan.workspace_bytes();
  ASSERT_GT(bytes, 0u);
  EXPECT_EQ(bytes % 256, 0u);
  Tensors t(20, 20, 3);
  fa4::ForwardArgs args = t.args();
  const std::string wanted = "accepted: at least " + std::to_string(bytes) + " bytes";
  EXPECT_NE(error_of(op, args).find(wanted), std::string::npos) << error_of(op, args);
  const small::Workspace workspace = small::workspace_of(bytes + 256);
  args.workspace = workspace.get();
  args.workspace_bytes = bytes - 1;
  EXPECT_NE(error_of(op, args).find(wanted), std::string::npos) << error_of(op, args);
  args.workspace = static_cast<char*>(workspace.get()) + 64;
  args.workspace_bytes = bytes;
  EXPECT_NE(error_of(op, args).find("multiples of 256"), std::string::npos) << error_of(op, args);
  args.workspace = workspace.get();
  args.workspace_bytes = bytes + 256;  // more is fine
  EXPECT_EQ(error_of(op, args), "accepted");
  const std::vector<float> first = t.out;
  std::fill_n(static_cast<unsigned char*>(workspace.get()), bytes, 0xff);  // any contents do
  EXPECT_EQ(error_of(op, args), "accepted");
  EXPECT_EQ(t.out, first);
}

TEST(Execute, RefusesWhatTheCpuCannotTake) {
  const fa4::Device device("cpu");
  const fa4::Plan plan(device, small::dense_problem(1, 8, 8, false));
  const fa4::ForwardOp op(plan);
  Tensors t(8, 8, 4);
  const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
  fa4::ForwardArgs good = t.args();
  good.workspace = workspace.get();
  good.workspace_bytes = plan.workspace_bytes();
  EXPECT_EQ(error_of(op, good), "accepted");
  fa4::ForwardArgs args = good;
  args.stream = reinterpret_cast<void*>(uintptr_t{64});
  EXPECT_EQ(error_of(op, args), "stream 0x40; accepted: NULL on the CPU");
  args = good;
  args.out = const_cast<float*>(t.q.data());
  EXPECT_NE(error_of(op, args).find("overlaps q"), std::string::npos) << error_of(op, args);
  args = good;
  args.k = nullptr;
  EXPECT_EQ(error_of(op, args), "k is NULL; accepted: a pointer to 1 x 8 x 2 x 16 elements");
  args = good;
  args.max_logit = t.lse.data();
  EXPECT_EQ(fa4_execute(op.get(), &args), FA4_NOT_SUPPORTED);
  EXPECT_EQ(std::string(fa4_last_error()).rfind("max_logit 0x", 0), 0u) << fa4_last_error();
  args = good;
  args.lse = nullptr;
  EXPECT_EQ(error_of(op, args), "accepted");
}

TEST(Execute, EmptyProblemsNeedNoPointers) {
  const fa4::Device device("cpu");
  for (const fa4::Problem& problem :
       {small::dense_problem(0, 8, 8, false), small::dense_problem(2, 0, 8, true)}) {
    fa4::forward(device, problem, fa4::ForwardArgs());
  }
  const fa4::Problem no_keys = small::dense_problem(1, 8, 0, false);
  Tensors t(8, 0, 5);
  fa4::forward(device, no_keys, t.args());
  for (float value : t.out) EXPECT_EQ(value, 0.0f);
  for (float value : t.lse) EXPECT_EQ(value, -std::numeric_limits<float>::infinity());
}

// One operation serves every step of a generation that only changes the lengths.
TEST(Execute, APackedPlanServesOtherLengths) {
  const fa4::Device device("cpu");
  const fa4::Plan plan(device, small::packed_problem(3, 40, 100, true));
  const fa4::ForwardOp op(plan);
  const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
  const std::vector<int32_t> steps[] = {
      {0, 40, 60, 100}, {0, 1, 1, 9}, {0, 0, 0, 0}, {0, 3, 43, 44}};
  for (const std::vector<int32_t>& cu_seqlens : steps) {
    const int64_t total = cu_seqlens[3];
    Tensors t(total, total, 6);
    fa4::ForwardArgs args = t.args();
    args.cu_seqlens_q = args.cu_seqlens_k = cu_seqlens.data();
    args.has_totals = 1;
    args.total_q = args.total_k = total;
    args.workspace = workspace.get();
    args.workspace_bytes = plan.workspace_bytes();
    op.execute(args);
    for (size_t b = 0; b < 3; ++b) {
      const int64_t first = cu_seqlens[b], length = cu_seqlens[b + 1] - first;
      EXPECT_LT(small::error_of(t, first, length, first, length, true), small::kBound);
    }
    // Alone, the same bits: the plan's maxima change nothing.
    Tensors alone(total, total, 6);
    fa4::ForwardArgs alone_args = alone.args();
    alone_args.cu_seqlens_q = alone_args.cu_seqlens_k = cu_seqlens.data();
    fa4::forward(device, small::packed_problem(3, 40, total, true), alone_args);
    EXPECT_EQ(alone.out, t.out);
    EXPECT_EQ(alone.lse, t.lse);
  }
  Tensors none(1, 1, 6);
  fa4::ForwardArgs negative = none.args();
  negative.has_totals = 1;
  negative.total_q = -1;
  EXPECT_EQ(error_of(op, negative),
            "total_q -1; accepted: from 0, with has_totals 0 the problem's");
  const std::vector<int32_t> too_long = {0, 41, 41, 41};
  Tensors t(100, 100, 7);
  fa4::ForwardArgs args = t.args();
  args.cu_seqlens_q = args.cu_seqlens_k = too_long.data();
  args.workspace = workspace.get();
  args.workspace_bytes = plan.workspace_bytes();
  EXPECT_EQ(
      error_of(op, args),
      "cu_seqlens_q[1] 41 after 0; accepted: ascending, at most 40 a sequence and 100 in all");
}

// A window that ends one key before the position: causal attention of all rows but the first over
// all keys but the last.
TEST(Window, ABoundMayBeNegative) {
  const fa4::Device device("cpu");
  for (const bool beside : {false, true}) {  // with has_window, or the bits alone
    fa4::Problem problem = small::dense_problem(1, 20, 20, false);
    problem.has_window = beside ? 1 : 0;
    problem.window_left = -1;  // no bound
    problem.window_right = -1;
    problem.window_bounds = 2;
    Tensors t(20, 20, 10);
    fa4::forward(device, problem, t.args());
    EXPECT_LT(small::error_of(t, 1, 19, 0, 19, true), small::kBound);
    for (int h = 0; h < small::kHeadsQ; ++h) {
      EXPECT_EQ(t.lse[static_cast<size_t>(20 * h)], -std::numeric_limits<float>::infinity());
    }
    EXPECT_EQ(t.out[0], 0.0f);
  }
}

TEST(Window, WithoutItsBitMinusOneIsNoBound) {
  const fa4::Device device("cpu");
  fa4::Problem problem = small::dense_problem(1, 20, 20, false);
  problem.has_window = 1;
  problem.window_left = problem.window_right = -1;
  Tensors t(20, 20, 11);
  fa4::forward(device, problem, t.args());
  EXPECT_LT(small::error_of(t, 0, 20, 0, 20, false), small::kBound);
  problem.window_bounds = 4;
  EXPECT_EQ(fa4_query_support(device.get(), &problem), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "window_bounds 4; accepted: 0, 1 (left), 2 (right), 3 (both)");
}

TEST(Sink, MayBeOf16Bits) {
  const fa4::Device device("cpu");
  fa4::Problem problem = small::dense_problem(1, 9, 9, true);
  problem.has_sink = 1;
  const float wide[small::kHeadsQ] = {1.0f, -0.5f, 2.0f, 0.25f};
  const uint16_t bf16[small::kHeadsQ] = {0x3f80, 0xbf00, 0x4000, 0x3e80};
  const uint16_t f16[small::kHeadsQ] = {0x3c00, 0xb800, 0x4000, 0x3400};
  Tensors wanted(9, 9, 12);
  fa4::ForwardArgs args = wanted.args();
  args.sink = wide;
  fa4::forward(device, problem, args);
  for (const auto& [dtype, sinks] :
       {std::pair<int32_t, const uint16_t*>{FA4_BF16, bf16}, {FA4_F16, f16}}) {
    Tensors t(9, 9, 12);
    args = t.args();
    args.sink = sinks;
    problem.sink_dtype = dtype;
    fa4::forward(device, problem, args);
    EXPECT_EQ(t.out, wanted.out) << dtype;
    EXPECT_EQ(t.lse, wanted.lse) << dtype;
  }
}

TEST(Forward, KeepsWhatItPrepared) {
  const fa4::Device device("cpu");
  for (int round = 0; round < 3; ++round) {
    for (int64_t seqlen = 1; seqlen <= 12; ++seqlen) {  // more problems than the device keeps
      Tensors t(seqlen, seqlen, 8);
      fa4::forward(device, small::dense_problem(1, seqlen, seqlen, true), t.args());
      ASSERT_LT(small::error_of(t, 0, seqlen, 0, seqlen, true), small::kBound) << seqlen;
    }
  }
}

TEST(Forward, TakesTheCallersWorkspace) {
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(1, 16, 16, true);
  const size_t bytes = fa4::Plan(device, problem).workspace_bytes();
  Tensors t(16, 16, 9);
  fa4::ForwardArgs args = t.args();
  const small::Workspace workspace = small::workspace_of(bytes);
  args.workspace = workspace.get();
  args.workspace_bytes = bytes;
  fa4::forward(device, problem, args);
  EXPECT_LT(small::error_of(t, 0, 16, 0, 16, true), small::kBound);
  args.workspace_bytes = 1;
  EXPECT_THROW(fa4::forward(device, problem, args), fa4::Error);
}

}  // namespace
