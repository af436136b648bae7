// The backward through the C ABI and the C++ layer: results, workspace, threads, what is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <string>
#include <thread>

#include "malloc_counter.h"
#include "small_gradients.h"

namespace {

using small::Gradients;
using small::Tensors;

// Prepared for one problem, with its workspace.
struct Prepared {
  Prepared(const fa4::Device& device, const fa4::Problem& problem, int32_t threads = 0)
      : plan(device, problem, threads, fa4::Direction::kBackward),
        op(plan),
        workspace(small::workspace_of(plan.workspace_bytes())) {}
  fa4::BackwardArgs with_workspace(fa4::BackwardArgs args) const {
    args.workspace = workspace.get();
    args.workspace_bytes = plan.workspace_bytes();
    return args;
  }
  fa4::Plan plan;
  fa4::BackwardOp op;
  small::Workspace workspace;
};

std::string error_of(fa4_status status) { return status == FA4_OK ? "accepted" : fa4_last_error(); }

TEST(Backward, IsTheGradient) {
  const fa4::Device device("cpu");
  for (const bool causal : {false, true}) {
    const fa4::Problem problem = small::dense_problem(1, 33, 47, causal);
    Tensors t(33, 47, 1);
    fa4::forward(device, problem, t.args());
    Gradients steps(t, 33, 47, 1), one_call(t, 33, 47, 1);
    const Prepared prepared(device, problem);
    prepared.op.execute(prepared.with_workspace(steps.args()));
    EXPECT_LT(small::gradient_error(steps, 33, 47, causal), small::kBound);
    for (int i = 0; i < 2; ++i) fa4::backward(device, problem, one_call.args());
    EXPECT_EQ(steps.dq, one_call.dq);
    EXPECT_EQ(steps.dk, one_call.dk);
    EXPECT_EQ(steps.dv, one_call.dv);
  }
}

// A sum of nothing has no sign.
TEST(Backward, TheSinksGradientOfAnEmptyProblemIsPlainZero) {
  const fa4::Device device("cpu");
  fa4::Problem problem = small::dense_problem(1, 0, 4, false);
  problem.has_sink = 1;
  Tensors t(0, 4, 1);
  Gradients g(t, 0, 4, 1);
  const std::vector<float> sink(small::kHeadsQ, 0.5f);
  std::vector<float> dsink(sink.size(), 1.0f);
  fa4::BackwardArgs args = g.args();
  args.sink = sink.data();
  args.dsink = dsink.data();
  fa4::backward(device, problem, args);
  for (const float value : dsink) {
    EXPECT_EQ(value, 0.0f);
    EXPECT_FALSE(std::signbit(value));
  }
}

TEST(Backward, AnyNumberOfThreadsGivesTheSameBits) {
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(1, 300, 290, true);
  Tensors t(300, 290, 1);
  fa4::forward(device, problem, t.args());
  std::vector<float> dq, dk;
  for (int32_t threads : {1, 2, 3, 7}) {
    Gradients g(t, 300, 290, 1);
    const Prepared prepared(device, problem, threads);
    prepared.op.execute(prepared.with_workspace(g.args()));
    if (dq.empty()) dq = g.dq, dk = g.dk;
    EXPECT_EQ(g.dq, dq) << threads << " threads";
    EXPECT_EQ(g.dk, dk) << threads << " threads";
  }
}

TEST(Backward, EightThreadsShareOneOperation) {
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(1, 70, 70, true);
  const Prepared prepared(device, problem, 3);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      Tensors t(70, 70, thread);
      fa4::forward(device, problem, t.args());
      const small::Workspace workspace = small::workspace_of(prepared.plan.workspace_bytes());
      for (int round = 0; round < 3; ++round) {
        Gradients g(t, 70, 70, thread);
        fa4::BackwardArgs args = g.args();
        args.workspace = workspace.get();
        args.workspace_bytes = prepared.plan.workspace_bytes();
        const bool ran = fa4_execute_backward(prepared.op.get(), &args) == FA4_OK;
        if (!ran || small::gradient_error(g, 70, 70, true) > small::kBound) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST(Backward, AllocatesNothing) {
  if (!kCountsMallocs) GTEST_SKIP() << "a sanitizer has its own malloc";
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(1, 200, 200, true);
  Tensors t(200, 200, 1);
  fa4::forward(device, problem, t.args());
  Gradients g(t, 200, 200, 1);
  const Prepared prepared(device, problem, 3);
  const fa4::BackwardArgs args = prepared.with_workspace(g.args());
  const int64_t before = num_mallocs();
  for (int i = 0; i < 5; ++i) prepared.op.execute(args);
  EXPECT_EQ(num_mallocs(), before);
}

TEST(Backward, WorkspaceHasItsRules) {
  const fa4::Device device("cpu");
  const Prepared prepared(device, small::dense_problem(1, 20, 20, false));
  const size_t bytes = prepared.plan.workspace_bytes();
  ASSERT_GT(bytes, 0u);
  EXPECT_EQ(bytes % 256, 0u);
  Tensors t(20, 20, 3);
  Gradients g(t, 20, 20, 3);
  fa4::BackwardArgs args = g.args();
  const std::string wanted = "accepted: at least " + std::to_string(bytes) + " bytes";
  EXPECT_NE(error_of(fa4_execute_backward(prepared.op.get(), &args)).find(wanted),
            std::string::npos);
}

TEST(Backward, AnOperationHasOneDirection) {
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(1, 8, 8, false);
  const fa4::Plan plan(device, problem);
  const fa4::ForwardOp forward(plan);
  const Prepared backward(device, problem);
  Tensors t(8, 8, 1);
  Gradients g(t, 8, 8, 1);
  const fa4::ForwardArgs forward_args = t.args();
  const fa4::BackwardArgs backward_args = g.args();
  EXPECT_EQ(error_of(fa4_execute_backward(forward.get(), &backward_args)),
            "op is of the other direction; accepted: one prepared from a plan of "
            "fa4_plan_backward");
  EXPECT_EQ(error_of(fa4_execute(backward.op.get(), &forward_args)),
            "op is of the other direction; accepted: one prepared from a plan of "
            "fa4_plan_forward");
}

TEST(Backward, PlansDescribeThemselves) {
  const fa4::Device device("cpu");
  const fa4::Plan plan(device, small::dense_problem(1, 64, 64, true), fa4::Direction::kBackward);
  EXPECT_EQ(plan.kernel_name().rfind("cpu_backward_", 0), 0u) << plan.kernel_name();
  EXPECT_NE(plan.describe().find("workspace"), std::string::npos);
}

TEST(Backward, RefusalsTeach) {
  const fa4::Device device("cpu");
  fa4::Problem problem = small::dense_problem(1, 8, 8, false);
  EXPECT_FALSE(fa4::unsupported_reason(device, problem, fa4::Direction::kBackward).has_value());
  problem.grad_dtype = FA4_F16;
  EXPECT_EQ(error_of(fa4_query_backward_support(device.get(), &problem)),
            "grad_dtype 2; accepted: 0 (dtype, f32), 1 (f32)");
  problem.grad_dtype = 0;
  problem.deterministic = 2;
  EXPECT_EQ(error_of(fa4_query_backward_support(device.get(), &problem)),
            "deterministic 2; accepted: 0, 1");
  problem.deterministic = 1;
  problem.dk_strides[0] = problem.dk_strides[1] = 32;
  EXPECT_EQ(error_of(fa4_query_backward_support(device.get(), &problem)),
            "strides (32, 32, 0) of dk overlap; accepted: each at least what the smaller ones "
            "span");
  Tensors t(8, 8, 1);
  Gradients g(t, 8, 8, 1);
  const fa4::Problem valid = small::dense_problem(1, 8, 8, false);
  const auto refused = [&](auto change) {
    fa4::BackwardArgs args = g.args();
    change(args);
    return error_of(fa4_backward(device.get(), &valid, &args));
  };
  EXPECT_EQ(refused([](auto& a) { a.dout = nullptr; }),
            "dout is NULL; accepted: a pointer, or NULL for zeros when the problem has_dlse");
  EXPECT_EQ(refused([](auto& a) { a.dk = nullptr; }),
            "dk is NULL and dv is not; accepted: both, or neither");
  EXPECT_EQ(refused([](auto& a) { a.lse = nullptr; }),
            "lse is NULL; accepted: a pointer to 1 x 8 x 4 x 1 elements");
  EXPECT_EQ(refused([&](auto& a) { a.dlse = g.dq.data(); }),
            "dlse is given, but the problem has no dlse; accepted: NULL");
  EXPECT_EQ(refused([&](auto& a) { a.dsink = g.dq.data(); }),
            "dsink is given, but the problem has no sink; accepted: NULL");
  EXPECT_NE(refused([](auto& a) { a.dv = a.dk; }).find("overlaps"), std::string::npos);
  EXPECT_NE(refused([](auto& a) { a.dq = const_cast<void*>(a.q); }).find("overlaps"),
            std::string::npos);
}

// What a program of an older header brings.
TEST(Backward, AnOlderProblemHasDefaults) {
  const fa4::Device device("cpu");
  fa4::Problem problem = small::dense_problem(1, 8, 8, true);
  problem.deterministic = 77;  // behind the end of the struct: must not be read
  problem.struct_size = offsetof(fa4_problem, has_seqused_q);
  EXPECT_EQ(error_of(fa4_query_backward_support(device.get(), &problem)), "accepted");
}

TEST(Backward, WithoutQueriesKeysGetZerosAndNoneIsRead) {
  const fa4::Device device("cpu");
  for (const int32_t dtype : {FA4_F32, FA4_BF16}) {
    fa4::Problem problem = small::dense_problem(1, 0, 5, false);
    problem.dtype = dtype;
    problem.grad_dtype = FA4_F32;
    const Prepared prepared(device, problem);
    std::vector<float> dk(5 * small::kHeadsKV * small::kHeadDim, 1.0f), dv = dk;
    const std::vector<float> zeros(dk.size(), 0.0f);
    fa4::BackwardArgs args;
    args.dk = dk.data();
    args.dv = dv.data();
    prepared.op.execute(prepared.with_workspace(args));
    EXPECT_EQ(dk, zeros);
    EXPECT_EQ(dv, zeros);
  }
}

TEST(Backward, PagesAreRefused) {
  const fa4::Device device("cpu");
  fa4::Problem problem = small::dense_problem(1, 8, 8, true);
  problem.layout_kv = FA4_PAGED;
  problem.page_size = problem.num_pages = 8;
  problem.pages_per_seq = 1;
  EXPECT_EQ(fa4_query_backward_support(device.get(), &problem), FA4_NOT_SUPPORTED);
  EXPECT_STREQ(fa4_last_error(), "layout_kv paged; accepted for the backward: dense, packed");
}

}  // namespace
