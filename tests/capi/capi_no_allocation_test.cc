// execute allocates nothing, on any thread, not even the first time. This program's malloc counts.
#include <gtest/gtest.h>

#include "malloc_counter.h"
#include "small_attention.h"

namespace {

using small::Tensors;

int64_t allocations_of(const fa4::Problem& problem, Tensors& t, const int32_t* cu_seqlens) {
  const fa4::Device device("cpu");
  const fa4::Plan plan(device, problem, 3);
  const fa4::ForwardOp op(plan);
  const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
  fa4::ForwardArgs args = t.args();
  args.cu_seqlens_q = args.cu_seqlens_k = cu_seqlens;
  args.workspace = workspace.get();
  args.workspace_bytes = plan.workspace_bytes();
  const int64_t before = num_mallocs();
  for (int i = 0; i < 5; ++i) op.execute(args);
  return num_mallocs() - before;
}

TEST(NoAllocation, TheCounterCounts) {
  if (!kCountsMallocs) GTEST_SKIP() << "a sanitizer has its own malloc";
  const int64_t before = num_mallocs();
  std::vector<int> vector(1000);
  EXPECT_GT(num_mallocs(), before);
  // The library's own: opening a device allocates its handle.
  const int64_t before_open = num_mallocs();
  const fa4::Device device("cpu");
  EXPECT_GT(num_mallocs(), before_open);
}

TEST(NoAllocation, InExecute) {
  if (!kCountsMallocs) GTEST_SKIP() << "a sanitizer has its own malloc";
  Tensors dense(2 * 100, 2 * 100, 1);
  EXPECT_EQ(allocations_of(small::dense_problem(2, 100, 100, true), dense, nullptr), 0);
  Tensors packed(100, 100, 2);
  const int32_t cu_seqlens[] = {0, 30, 30, 100};
  EXPECT_EQ(allocations_of(small::packed_problem(3, 80, 100, false), packed, cu_seqlens), 0);
}

}  // namespace
