#include "attention/cpu_forward_op.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/error.h"
#include "small_problem.h"

namespace fa4::internal {
namespace {

// Contiguous tensors of a problem; every value is one of a few, so that sums differ by row.
struct Tensors {
  explicit Tensors(const AttentionProblem& p)
      : q(elements(p.rows_q(), p.heads_q, p.head_dim), 3),
        k(elements(p.batch * p.seqlen_k, p.heads_kv, p.head_dim), 5),
        v(elements(p.batch * p.seqlen_k, p.heads_kv, p.head_dim_v), 7),
        out(elements(p.rows_q(), p.heads_q, p.head_dim_v), 0),
        lse(static_cast<size_t>(p.lse_elements())) {
    uint32_t state = 1;
    for (std::vector<uint16_t>* tensor : {&q, &k, &v}) {
      for (uint16_t& element : *tensor) {
        state = state * 1664525u + 1013904223u;
        element = float_to_bf16(static_cast<float>(state >> 24) / 128.0f - 1.0f);
      }
    }
  }

  static size_t elements(int64_t rows, int64_t heads, int64_t dim) {
    return static_cast<size_t>(rows * heads * dim);
  }

  ForwardArgs args() {
    ForwardArgs args;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.out = out.data();
    args.lse = lse.data();
    return args;
  }

  std::vector<uint16_t> q, k, v, out;
  std::vector<float> lse;
};

struct Scratch {
  explicit Scratch(size_t bytes) : memory(bytes + 256) {
    data = memory.data() + (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256) % 256;
  }
  std::vector<unsigned char> memory;
  unsigned char* data;
};

TEST(CpuForwardOp, ThreadsAndCallersChangeNoBit) {
  const AttentionProblem problem = small_problem(DType::kBF16, true, 200);
  std::vector<uint16_t> first;
  for (int num_threads : {1, 2, 3, 7}) {
    const ForwardPlan plan = plan_forward(problem, host_cpu_spec(), {.num_threads = num_threads});
    const auto op = prepare(plan, nullptr);
    std::vector<Tensors> tensors(4, Tensors(problem));
    std::vector<std::thread> callers;
    for (Tensors& t : tensors) {
      callers.emplace_back([&] {
        Scratch scratch(plan.workspace.bytes());
        ForwardArgs args = t.args();
        args.workspace = scratch.data;
        args.workspace_bytes = plan.workspace.bytes();
        op->execute(args);
      });
    }
    for (std::thread& caller : callers) caller.join();
    if (first.empty()) first = tensors[0].out;
    for (const Tensors& t : tensors) EXPECT_EQ(t.out, first) << num_threads << " threads";
  }
  EXPECT_NE(first, std::vector<uint16_t>(first.size()));
}

TEST(CpuForwardOp, WritesNothingBehindItsWorkspace) {
  const AttentionProblem problem = small_problem(DType::kBF16, false, 70);
  const ForwardPlan plan = plan_forward(problem, host_cpu_spec(), {.num_threads = 3});
  const auto op = prepare(plan, nullptr);
  Tensors t(problem);
  Scratch scratch(plan.workspace.bytes() + 512);
  std::fill(scratch.memory.begin(), scratch.memory.end(), 0xa5);
  ForwardArgs args = t.args();
  args.workspace = scratch.data;
  args.workspace_bytes = plan.workspace.bytes();
  op->execute(args);
  for (size_t i = 0; i < 512; ++i) ASSERT_EQ(scratch.data[plan.workspace.bytes() + i], 0xa5) << i;
}

}  // namespace
}  // namespace fa4::internal
