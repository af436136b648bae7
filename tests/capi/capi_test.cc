// Statuses, error texts, struct sizes, reserved options, handles, plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "core/error.h"
#include "small_attention.h"

namespace {

using fa4::internal::ErrorCode;

fa4_device* cpu() {
  static fa4_device* const device = [] {
    fa4_device* opened = nullptr;
    EXPECT_EQ(fa4_open_device("cpu", &opened), FA4_OK) << fa4_last_error();
    return opened;
  }();
  return device;
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

TEST(Status, HasTheValuesOfErrorCode) {
  EXPECT_EQ(FA4_INVALID_ARGUMENT, static_cast<int>(ErrorCode::kInvalidArgument));
  EXPECT_EQ(FA4_NOT_SUPPORTED, static_cast<int>(ErrorCode::kNotSupported));
  EXPECT_EQ(FA4_OUT_OF_MEMORY, static_cast<int>(ErrorCode::kOutOfMemory));
  EXPECT_EQ(FA4_DEVICE_UNAVAILABLE, static_cast<int>(ErrorCode::kDeviceUnavailable));
  EXPECT_EQ(FA4_DRIVER, static_cast<int>(ErrorCode::kDriver));
  EXPECT_EQ(FA4_COMPILER, static_cast<int>(ErrorCode::kCompiler));
  EXPECT_EQ(FA4_STREAM_CAPTURE, static_cast<int>(ErrorCode::kStreamCapture));
  EXPECT_EQ(FA4_IO, static_cast<int>(ErrorCode::kIo));
  EXPECT_EQ(FA4_INTERNAL, static_cast<int>(ErrorCode::kInternal));
}

TEST(Status, HasNames) {
  EXPECT_STREQ(fa4_status_name(FA4_OK), "OK");
  EXPECT_STREQ(fa4_status_name(FA4_NOT_SUPPORTED), "NOT_SUPPORTED");
  EXPECT_STREQ(fa4_status_name(FA4_STREAM_CAPTURE), "STREAM_CAPTURE");
  EXPECT_STREQ(fa4_status_name(FA4_INTERNAL), "INTERNAL");
  EXPECT_STREQ(fa4_status_name(10), "UNKNOWN");
  EXPECT_STREQ(fa4_status_name(-1), "UNKNOWN");
}

TEST(DeviceMemory, HoldsWhatWasCopiedThere) {
  fa4_device* device = nullptr;
  ASSERT_EQ(fa4_open_device("emulated:b200", &device), FA4_OK) << fa4_last_error();
  void* memory = nullptr;
  ASSERT_EQ(fa4_device_alloc(device, 1000, &memory), FA4_OK) << fa4_last_error();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
  char given[1000], back[1000] = {};
  for (int i = 0; i < 1000; ++i) given[i] = static_cast<char>(i);
  EXPECT_EQ(fa4_device_copy(device, memory, given, 1000, FA4_TO_DEVICE), FA4_OK);
  EXPECT_EQ(fa4_device_copy(device, back, memory, 1000, FA4_TO_HOST), FA4_OK);
  EXPECT_EQ(std::memcmp(given, back, 1000), 0);
  EXPECT_EQ(fa4_device_copy(device, back, nullptr, 0, FA4_TO_HOST), FA4_OK);
  EXPECT_EQ(fa4_device_copy(device, back, memory, 1000, 3), FA4_INVALID_ARGUMENT);
  EXPECT_TRUE(starts_with(fa4_last_error(), "direction 3; accepted: ")) << fa4_last_error();
  EXPECT_EQ(fa4_device_free(device, memory), FA4_OK);
  EXPECT_EQ(fa4_device_free(device, nullptr), FA4_OK);
  for (void* none : {memory, reinterpret_cast<void*>(0x1234)}) {
    EXPECT_EQ(fa4_device_free(device, none), FA4_DRIVER);
    EXPECT_NE(std::string(fa4_last_error()).find("is no allocation"), std::string::npos);
  }
  fa4_close_device(device);
}

TEST(DeviceMemory, IsNotTheCpus) {
  void* memory = nullptr;
  EXPECT_EQ(fa4_device_alloc(cpu(), 256, &memory), FA4_INVALID_ARGUMENT);
  EXPECT_TRUE(starts_with(fa4_last_error(), "fa4_device_alloc: device cpu; accepted: "))
      << fa4_last_error();
  EXPECT_EQ(fa4_device_free(cpu(), nullptr), FA4_INVALID_ARGUMENT);
  EXPECT_EQ(fa4_device_copy(nullptr, memory, memory, 0, FA4_TO_HOST), FA4_INVALID_ARGUMENT);
}

TEST(Library, HasItsVersions) {
  EXPECT_EQ(fa4_abi_version(), static_cast<uint32_t>(FA4_ABI_VERSION));
  EXPECT_EQ(std::count(fa4_version(), fa4_version() + std::strlen(fa4_version()), '.'), 2);
}

TEST(Library, RefusesUnknownConfiguration) {
  EXPECT_EQ(fa4_configure("colour", "red"), FA4_INVALID_ARGUMENT);
  EXPECT_TRUE(starts_with(fa4_last_error(), "configuration key \"colour\"; accepted: cache_dir"));
  EXPECT_EQ(fa4_configure(nullptr, "1"), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "key is NULL; accepted: a pointer");
  fa4_device* device = cpu();  // reads the configuration
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(fa4_configure("num_threads", "1"), FA4_INVALID_ARGUMENT);
  EXPECT_TRUE(starts_with(fa4_last_error(), "num_threads \"1\" comes too late"));
}

TEST(LastError, BelongsToTheThread) {
  EXPECT_EQ(fa4_configure(nullptr, nullptr), FA4_INVALID_ARGUMENT);
  const std::string before = fa4_last_error();
  EXPECT_FALSE(before.empty());
  std::string other_first, other_later;
  std::thread([&] {
    other_first = fa4_last_error();
    fa4_close_device(nullptr);
    EXPECT_EQ(fa4_device_count(nullptr), FA4_INVALID_ARGUMENT);
    other_later = fa4_last_error();
  }).join();
  EXPECT_EQ(other_first, "");
  EXPECT_EQ(other_later, "count is NULL; accepted: a pointer");
  EXPECT_EQ(fa4_last_error(), before);
}

TEST(LastError, IsOneLineWhateverItShows) {
  fa4_device* device = nullptr;
  EXPECT_EQ(fa4_open_device("a\nb\rc\x1b[2Jd\x7f\t\xc3\xa9", &device), FA4_DEVICE_UNAVAILABLE);
  EXPECT_TRUE(starts_with(fa4_last_error(), "a b c [2Jd  \xc3\xa9: not the name of a device"))
      << fa4_last_error();
}

TEST(Devices, TheCpuIsFirst) {
  int32_t count = 0;
  ASSERT_EQ(fa4_device_count(&count), FA4_OK);
  ASSERT_GE(count, 1);
  fa4_device_info info = FA4_INIT(fa4_device_info);
  ASSERT_EQ(fa4_describe_device(0, &info), FA4_OK);
  EXPECT_STREQ(info.name, "cpu");
  EXPECT_EQ(info.kind, FA4_DEVICE_CPU);
  EXPECT_GE(info.num_threads, 1);
  EXPECT_EQ(fa4_describe_device(count, &info), FA4_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(fa4_last_error()),
            "index " + std::to_string(count) + "; accepted: 0 to " + std::to_string(count - 1));
  EXPECT_EQ(static_cast<int32_t>(fa4::devices().size()), count);
}

TEST(Devices, ShortInfoIsFilledAsFarAsItGoes) {
  fa4_device_info info;
  std::memset(&info, 0x5a, sizeof(info));
  info.struct_size = offsetof(fa4_device_info, num_sms);
  ASSERT_EQ(fa4_describe_device(0, &info), FA4_OK);
  EXPECT_EQ(info.struct_size, offsetof(fa4_device_info, num_sms));
  EXPECT_GE(info.num_threads, 1);
  EXPECT_NE(info.num_threads, 0x5a5a5a5a);
  EXPECT_EQ(info.num_sms, 0x5a5a5a5a);
}

TEST(Devices, UnknownNamesAreUnavailable) {
  fa4_device* device = reinterpret_cast<fa4_device*>(1);
  for (const char* name : {"", "gpu", "cuda:9999", "CPU"}) {
    EXPECT_EQ(fa4_open_device(name, &device), FA4_DEVICE_UNAVAILABLE) << name;
    EXPECT_NE(std::string(fa4_last_error()).find("available: cpu"), std::string::npos)
        << fa4_last_error();
    EXPECT_EQ(device, reinterpret_cast<fa4_device*>(1)) << "written on failure";
  }
}

TEST(Handles, DestroyingNullDoesNothing) {
  fa4_close_device(nullptr);
  fa4_destroy_plan(nullptr);
  fa4_destroy_op(nullptr);
  EXPECT_EQ(fa4_plan_workspace_bytes(nullptr), 0u);
  EXPECT_STREQ(fa4_plan_kernel_name(nullptr), "");
}

TEST(Handles, NullIsRefusedByName) {
  const fa4::Problem problem = small::dense_problem(1, 4, 4, false);
  fa4_plan* plan = nullptr;
  EXPECT_EQ(fa4_query_support(nullptr, &problem), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "device is NULL; accepted: a pointer");
  EXPECT_EQ(fa4_query_support(cpu(), nullptr), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "problem is NULL; accepted: a pointer");
  EXPECT_EQ(fa4_plan_forward(cpu(), &problem, nullptr, nullptr), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "plan is NULL; accepted: a pointer");
  EXPECT_EQ(fa4_plan_forward(nullptr, &problem, nullptr, &plan), FA4_INVALID_ARGUMENT);
  EXPECT_EQ(fa4_plan_describe(nullptr, nullptr, 0, nullptr), FA4_INVALID_ARGUMENT);
  fa4_op* op = nullptr;
  EXPECT_EQ(fa4_prepare(nullptr, &op), FA4_INVALID_ARGUMENT);
  fa4_forward_args args = FA4_INIT(fa4_forward_args);
  EXPECT_EQ(fa4_execute(nullptr, &args), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "op is NULL; accepted: a pointer");
  EXPECT_EQ(fa4_forward(nullptr, &problem, &args), FA4_INVALID_ARGUMENT);
  EXPECT_EQ(fa4_forward(cpu(), &problem, nullptr), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "args is NULL; accepted: a pointer");
}

TEST(StructSize, ShorterMeansZeroTail) {
  fa4::Problem problem = small::dense_problem(1, 4, 4, true);
  problem.softcap = -1;  // behind the end of the struct: must not be read
  problem.struct_size = offsetof(fa4_problem, softcap);
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_OK) << fa4_last_error();
  problem.struct_size = sizeof(fa4_problem);
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_INVALID_ARGUMENT);
  problem.struct_size = offsetof(fa4_problem, heads_q);  // heads are then 0
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_INVALID_ARGUMENT);
  EXPECT_TRUE(starts_with(fa4_last_error(), "num_heads 0 of q"));
}

TEST(StructSize, LongerNeedsAZeroTail) {
  struct Newer {
    fa4_problem known;
    uint64_t unknown;
  } newer{small::dense_problem(1, 4, 4, true), 0};
  newer.known.struct_size = sizeof(newer);
  EXPECT_EQ(fa4_query_support(cpu(), &newer.known), FA4_OK) << fa4_last_error();
  newer.unknown = 0x0700;
  EXPECT_EQ(fa4_query_support(cpu(), &newer.known), FA4_NOT_SUPPORTED);
  EXPECT_EQ(std::string(fa4_last_error()), "byte " + std::to_string(sizeof(fa4_problem) + 1) +
                                               " of fa4_problem is 7; accepted: 0, as fa4 " +
                                               fa4_version() + " knows " +
                                               std::to_string(sizeof(fa4_problem)) + " bytes");
}

TEST(StructSize, ZeroAndNonsenseAreRefused) {
  fa4::Problem problem = small::dense_problem(1, 4, 4, true);
  for (uint32_t size : {0u, 3u, 4097u, 0xffffffffu}) {
    problem.struct_size = size;
    EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_INVALID_ARGUMENT);
    EXPECT_TRUE(starts_with(fa4_last_error(),
                            "struct_size " + std::to_string(size) + " of fa4_problem; accepted: "))
        << fa4_last_error();
  }
}

TEST(Options, SplitsAreChecked) {
  const auto error_after = [](void (*change)(fa4_problem&)) -> std::string {
    fa4::Problem problem = small::dense_problem(1, 4, 4, true);
    change(problem);
    return fa4_query_support(cpu(), &problem) == FA4_OK ? "accepted" : fa4_last_error();
  };
  EXPECT_EQ(error_after([](fa4_problem& p) { p.num_splits = 3; }), "accepted");
  EXPECT_EQ(error_after([](fa4_problem& p) { p.split_keys = 256; }), "accepted");
  EXPECT_EQ(error_after([](fa4_problem& p) { p.num_splits = -1; }),
            "num_splits -1; accepted: 0 (the plan decides), 1 (keys are not cut) or more");
  EXPECT_EQ(error_after([](fa4_problem& p) { p.split_keys = 100; }),
            "split_keys 100; accepted: 0 (num_splits holds), multiples of 128 to 2147483647");
  EXPECT_EQ(error_after([](fa4_problem& p) { p.split_keys = 128, p.num_splits = 1; }),
            "split_keys 128 beside num_splits 1; accepted: one of them");
}

TEST(Options, ASharedPrefixIsChecked) {
  const auto error_after = [](void (*change)(fa4_problem&)) -> std::string {
    fa4::Problem problem = small::dense_problem(1, 4, 40, true);
    problem.layout_kv = FA4_PAGED;
    problem.page_size = 8;
    problem.num_pages = 9;
    problem.pages_per_seq = 3;
    problem.prefix_len = 16;
    change(problem);
    return fa4_query_support(cpu(), &problem) == FA4_OK ? "accepted" : fa4_last_error();
  };
  EXPECT_EQ(error_after([](fa4_problem&) {}), "accepted");
  EXPECT_EQ(error_after([](fa4_problem& p) { p.prefix_len = 15; }),
            "seqlen_k 40; accepted: 0 to prefix_len 15 + pages_per_seq 3 x page_size 8 = 39");
  EXPECT_EQ(error_after([](fa4_problem& p) { p.prefix_len = -1; }),
            "prefix_len -1; accepted: 0 to 2147483647");
  EXPECT_EQ(error_after([](fa4_problem& p) { p.layout_kv = FA4_DENSE; }),
            "prefix_len 16; accepted: 0, as k is not paged");
}

TEST(Options, ReservedOnesAreNamed) {
  const auto error_after = [](void (*change)(fa4_problem&)) -> std::string {
    fa4::Problem problem = small::dense_problem(1, 4, 4, true);
    change(problem);
    EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_NOT_SUPPORTED);
    fa4_plan* plan = nullptr;
    EXPECT_EQ(fa4_plan_forward(cpu(), &problem, nullptr, &plan), FA4_NOT_SUPPORTED);
    return fa4_last_error();
  };
  EXPECT_EQ(error_after([](fa4_problem& p) { p.has_max_logit = 1; }),
            "has_max_logit 1 is not in this version; accepted: 0");
  fa4::Problem problem = small::dense_problem(1, 4, 4, true);
  problem.out_dtype = problem.dtype;
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_OK);
  problem.dtype = FA4_BF16;  // and out_dtype FA4_F32
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_OK);
  EXPECT_EQ(fa4_query_backward_support(cpu(), &problem), FA4_OK);
  problem.out_dtype = FA4_F16;
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "out_dtype 2; accepted: 0 (dtype, bf16), 1 (f32)");
}

TEST(Options, FlagsAreZeroOrOne) {
  fa4::Problem problem = small::dense_problem(1, 4, 4, true);
  problem.causal = 2;
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "causal 2; accepted: 0, 1");
}

TEST(Options, ASmMarginIsAHint) {
  fa4::Problem problem = small::dense_problem(1, 4, 4, true);
  problem.sm_margin = 1000;  // of a CPU, and more than any GPU has
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_OK);
  problem.sm_margin = -1;
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "sm_margin -1; accepted: 0 or more");
}

TEST(Options, BadNumbersAreTaught) {
  fa4::Problem problem = small::dense_problem(1, 4, 4, true);
  problem.heads_kv = 3;
  EXPECT_EQ(fa4_query_support(cpu(), &problem), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(),
               "num_heads 3 of k does not divide num_heads 4 of q; accepted: 1, 2, 4");
  const fa4::Problem valid = small::dense_problem(1, 4, 4, true);
  fa4_plan_options options = FA4_INIT(fa4_plan_options);
  options.num_threads = -1;
  fa4_plan* plan = nullptr;
  EXPECT_EQ(fa4_plan_forward(cpu(), &valid, &options, &plan), FA4_INVALID_ARGUMENT);
  EXPECT_STREQ(fa4_last_error(), "num_threads -1; accepted: 0 to 4096");
}

TEST(Plan, DescribesItself) {
  const fa4::Device device("cpu");
  const fa4::Plan plan(device, small::dense_problem(1, 64, 64, true), 1);
  EXPECT_TRUE(starts_with(plan.kernel_name(), "cpu_")) << plan.kernel_name();
  const std::string text = plan.describe();
  EXPECT_GT(std::count(text.begin(), text.end(), '\n'), 1);
  char cut[6];
  size_t length = 0;
  ASSERT_EQ(fa4_plan_describe(plan.get(), cut, sizeof(cut), &length), FA4_OK);
  EXPECT_EQ(length, text.size());
  EXPECT_EQ(std::string(cut), text.substr(0, 5));
  EXPECT_EQ(plan.workspace_bytes() % 256, 0u);
}

TEST(CppLayer, ThrowsWithStatusAndText) {
  const fa4::Device device("cpu");
  fa4::Problem problem = small::dense_problem(1, 4, 4, true);
  EXPECT_FALSE(fa4::unsupported_reason(device, problem).has_value());
  problem.has_max_logit = 1;
  EXPECT_EQ(fa4::unsupported_reason(device, problem).value(),
            "has_max_logit 1 is not in this version; accepted: 0");
  problem.head_dim = 12;
  try {
    fa4::Plan plan(device, problem);
    ADD_FAILURE() << "head_dim 12 was planned";
  } catch (const fa4::Error& error) {
    EXPECT_EQ(error.status(), FA4_INVALID_ARGUMENT);
    EXPECT_STREQ(error.status_name(), "INVALID_ARGUMENT");
    EXPECT_STREQ(error.what(), "head_dim 12; accepted: multiples of 8 from 8 to 256");
  }
}

}  // namespace
