// Any number of threads on one operation, and on one device.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "small_attention.h"

namespace {

using small::Tensors;

TEST(Threads, EightShareOneOperation) {
  const fa4::Device device("cpu");
  const fa4::Plan plan(device, small::dense_problem(1, 70, 70, true), 3);
  const fa4::ForwardOp op(plan);
  const auto run = [&](Tensors& t) {
    const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
    fa4::ForwardArgs args = t.args();
    args.workspace = workspace.get();
    args.workspace_bytes = plan.workspace_bytes();
    return fa4_execute(op.get(), &args);
  };
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 5; ++round) {
        Tensors t(70, 70, thread);
        if (run(t) != FA4_OK || small::error_of(t, 0, 70, 0, 70, true) > small::kBound) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST(Threads, EightShareOneDevice) {
  const fa4::Device device("cpu");
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t round = 0; round < 12; ++round) {
        const int64_t seqlen = 1 + (thread + round) % 12;
        Tensors t(seqlen, seqlen, thread);
        const fa4::ForwardArgs args = t.args();
        const fa4::Problem problem = small::dense_problem(1, seqlen, seqlen, false);
        if (fa4_forward(device.get(), &problem, &args) != FA4_OK ||
            small::error_of(t, 0, seqlen, 0, seqlen, false) > small::kBound) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

// The thread count changes no bit.
TEST(Threads, AnyNumberGivesTheSameBits) {
  const fa4::Device device("cpu");
  std::vector<float> first;
  for (int32_t num_threads : {1, 2, 3, 7}) {
    const fa4::Plan plan(device, small::dense_problem(2, 150, 90, true), num_threads);
    const fa4::ForwardOp op(plan);
    Tensors t(2 * 150, 2 * 90, 1);
    const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
    fa4::ForwardArgs args = t.args();
    args.workspace = workspace.get();
    args.workspace_bytes = plan.workspace_bytes();
    op.execute(args);
    if (first.empty()) first = t.out;
    EXPECT_EQ(t.out, first) << num_threads << " threads";
  }
}

}  // namespace
