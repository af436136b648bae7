// Every allocation of the C API fails once: the status is FA4_OUT_OF_MEMORY, nothing leaks, and the
// next call works. This program's operator new fails on demand.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>

#include "malloc_counter.h"
#include "small_attention.h"

namespace {

std::atomic<int64_t> until_failure{-1};  // -1: none fails
std::atomic<int64_t> live{0};

void* allocate(size_t bytes, size_t alignment) {
  if (until_failure >= 0 && until_failure.fetch_sub(1) == 0) throw std::bad_alloc();
  void* pointer = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (pointer == nullptr) throw std::bad_alloc();
  ++live;
  return pointer;
}

void release(void* pointer) {
  if (pointer == nullptr) return;
  --live;
  std::free(pointer);
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, 16); }
void* operator new[](size_t bytes) { return allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* pointer) noexcept { release(pointer); }
void operator delete[](void* pointer) noexcept { release(pointer); }
void operator delete(void* pointer, size_t) noexcept { release(pointer); }
void operator delete[](void* pointer, size_t) noexcept { release(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { release(pointer); }
void operator delete(void* pointer, size_t, std::align_val_t) noexcept { release(pointer); }

namespace {

using Call = std::function<fa4_status()>;

// Fails the 1st, 2nd, ... allocation of `call` until it needs no more. Returns how many failed.
int fail_each_allocation(const char* name, const Call& call, bool check_leaks) {
  for (int failed = 0; failed < 10000; ++failed) {
    const int64_t live_before = live;
    until_failure = failed;
    const fa4_status status = call();
    const bool reached = until_failure < 0;
    until_failure = -1;
    if (!reached) {
      EXPECT_EQ(status, FA4_OK) << name << ": " << fa4_last_error();
      return failed;
    }
    EXPECT_EQ(status, FA4_OUT_OF_MEMORY)
        << name << ", allocation " << failed << ": " << fa4_last_error();
    EXPECT_STREQ(fa4_last_error(), "out of memory") << name;
    if (check_leaks) {
      EXPECT_EQ(live, live_before) << name << " leaks when allocation " << failed << " fails";
    }
  }
  ADD_FAILURE() << name << " never succeeds";
  return 0;
}

// All of the API's calls, in the order of use; each leaves what it made to the next ones.
struct Session {
  fa4::Problem problem = small::packed_problem(2, 20, 32, true);
  small::Tensors tensors{32, 32, 1};
  int32_t cu_seqlens[3] = {0, 12, 32};
  fa4_device* device = nullptr;
  fa4_plan* plan = nullptr;
  fa4_op* op = nullptr;
  fa4_forward_args args = tensors.args();
  small::Workspace workspace;

  ~Session() {
    fa4_destroy_op(op);
    fa4_destroy_plan(plan);
    fa4_close_device(device);
  }

  int run(bool check_leaks) {
    args.cu_seqlens_q = args.cu_seqlens_k = cu_seqlens;
    int32_t count = 0;
    fa4_device_info info = FA4_INIT(fa4_device_info);
    fa4_plan_options options = FA4_INIT(fa4_plan_options);
    options.num_threads = 3;
    char text[2000];
    int failed = 0;
    const auto each = [&](const char* name, const Call& call) {
      failed += fail_each_allocation(name, call, check_leaks);
    };
    each("device_count", [&] { return fa4_device_count(&count); });
    each("describe_device", [&] { return fa4_describe_device(0, &info); });
    each("open_device", [&] { return fa4_open_device("cpu", &device); });
    each("query_support", [&] { return fa4_query_support(device, &problem); });
    each("plan_forward", [&] { return fa4_plan_forward(device, &problem, &options, &plan); });
    each("plan_describe", [&] { return fa4_plan_describe(plan, text, sizeof(text), nullptr); });
    each("prepare", [&] { return fa4_prepare(plan, &op); });
    workspace = small::workspace_of(fa4_plan_workspace_bytes(plan));
    args.workspace = workspace.get();
    args.workspace_bytes = fa4_plan_workspace_bytes(plan);
    EXPECT_EQ(fail_each_allocation(
                  "execute", [&] { return fa4_execute(op, &args); }, true),
              0);
    args.workspace = nullptr;
    args.workspace_bytes = 0;
    each("forward", [&] { return fa4_forward(device, &problem, &args); });
    EXPECT_LT(small::error_of(tensors, 0, 12, 0, 12, true), small::kBound);
    const void* part_outs[] = {tensors.q.data(), tensors.q.data()};
    const float* part_lses[] = {tensors.lse.data(), tensors.lse.data()};
    std::vector<float> merged(tensors.q.size());
    fa4::MergeArgs merge;
    merge.dtype = FA4_F32;
    merge.num_parts = 2;
    merge.batch = 1;
    merge.seqlen = 32;
    merge.heads = small::kHeadsQ;
    merge.head_dim = small::kHeadDim;
    merge.part_outs = part_outs;
    merge.part_lses = part_lses;
    merge.out = merged.data();
    each("merge", [&] { return fa4_merge(device, &merge); });
    EXPECT_LT(small::error_of(tensors, 12, 20, 12, 20, true), small::kBound);
    return failed;
  }
};

TEST(OutOfMemory, IsReportedAtEveryAllocation) {
  fa4_status status = FA4_OK;
  EXPECT_GT(
      fail_each_allocation(
          "configure",
          [&] { return status = fa4_configure("cache_dir", "/nowhere/of/any/length"); }, false),
      0);
  EXPECT_EQ(status, FA4_OK);
  EXPECT_GT(Session().run(false), 10);  // what is kept for the process is made here
  EXPECT_GT(Session().run(true), 10);
}

// A refusal whose text cannot be made is out of memory too.
TEST(OutOfMemory, IsReportedWhileAnErrorIsMade) {
  fa4_device* device = nullptr;
  ASSERT_EQ(fa4_open_device("cpu", &device), FA4_OK);
  fa4::Problem problem = small::dense_problem(1, 4, 4, true);
  problem.heads_kv = 3;
  int out_of_memory = 0;
  fa4_status status = FA4_OUT_OF_MEMORY;
  for (int64_t n = 0; status == FA4_OUT_OF_MEMORY; ++n) {
    until_failure = n;
    status = fa4_query_support(device, &problem);
    until_failure = -1;
    if (status == FA4_OUT_OF_MEMORY) ++out_of_memory;
  }
  EXPECT_EQ(status, FA4_INVALID_ARGUMENT);
  EXPECT_GT(out_of_memory, 0);
  fa4_close_device(device);
}

// A thread whose first failure leaves no room for its own text still has a line.
TEST(OutOfMemory, HasALineWhereNoneCanBeAllocated) {
  if (!kCountsMallocs) GTEST_SKIP() << "a sanitizer has the program's malloc";
  std::thread([] {
    EXPECT_STREQ(fa4_last_error(), "");
    fail_mallocs(true);
    const fa4_status status = fa4_configure(nullptr, "");
    fail_mallocs(false);
    EXPECT_EQ(status, FA4_OUT_OF_MEMORY);
    EXPECT_STREQ(fa4_last_error(), "out of memory, for the text of this failure too");
    EXPECT_EQ(fa4_configure(nullptr, ""), FA4_INVALID_ARGUMENT);
    EXPECT_STREQ(fa4_last_error(), "key is NULL; accepted: a pointer");
  }).join();
  std::thread([] { EXPECT_STREQ(fa4_last_error(), ""); }).join();
}

}  // namespace
