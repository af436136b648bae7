// execute allocates nothing, on any thread, not even the first time. This program's malloc counts.
#include <gtest/gtest.h>

#include <atomic>

#include "small_attention.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

TEST(NoAllocation, InExecute) { GTEST_SKIP() << "a sanitizer has its own malloc"; }

#else

namespace {
std::atomic<int64_t> allocations{0};
}

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* pointer, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* pointer, size_t bytes) {
  ++allocations;
  return __libc_realloc(pointer, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** pointer, size_t alignment, size_t bytes) {
  *pointer = memalign(alignment, bytes);
  return *pointer == nullptr ? 12 : 0;  // ENOMEM
}
}

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
  const int64_t before = allocations;
  for (int i = 0; i < 5; ++i) op.execute(args);
  return allocations - before;
}

TEST(NoAllocation, TheCounterCounts) {
  const int64_t before = allocations;
  std::vector<int> vector(1000);
  EXPECT_GT(allocations, before);
  // The library's own: opening a device allocates its handle.
  const int64_t before_open = allocations;
  const fa4::Device device("cpu");
  EXPECT_GT(allocations, before_open);
}

TEST(NoAllocation, InExecute) {
  Tensors dense(2 * 100, 2 * 100, 1);
  EXPECT_EQ(allocations_of(small::dense_problem(2, 100, 100, true), dense, nullptr), 0);
  Tensors packed(100, 100, 2);
  const int32_t cu_seqlens[] = {0, 30, 30, 100};
  EXPECT_EQ(allocations_of(small::packed_problem(3, 80, 100, false), packed, cu_seqlens), 0);
}

}  // namespace

#endif
