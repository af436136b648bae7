// What execute asks of the driver and of malloc: to enqueue, and nothing that allocates,
// synchronises or waits.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "attention/backward_op.h"
#include "attention/forward_op.h"
#include "core/error.h"
#include "counting_driver.h"
#include "device/cuda/cuda_device.h"
#include "idle_gpu.h"
#include "malloc_counter.h"
#include "small_problem.h"

namespace fa4::internal {
namespace {

using Calls = std::map<std::string, int>;

struct Launch {
  const char* name;
  int major;
  bool causal;
  const char* kernel;    // begins so
  const char* backward;  // the main kernel
};

// An address of which nothing is read: the driver runs nothing.
template <class T>
T* somewhere(int i) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(i) << 32);
}

// The operation of a plan; without a compiler nullptr, and `reason` says so.
template <class Plan>
auto prepare_or_say(const Plan& plan, const std::shared_ptr<CudaDevice>& device,
                    std::string* reason) -> decltype(prepare(plan, device)) {
  try {
    return prepare(plan, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCompiler) throw;
    *reason = error.what();
    return nullptr;
  }
}

class DriverCalls : public testing::TestWithParam<Launch> {};

TEST_P(DriverCalls, OfExecuteOnlyEnqueue) {
  const bool hopper = GetParam().major == 9;
  const DriverApi api = counting_driver(hopper ? idle_gpu<9>() : idle_gpu<10>());
  const auto device = std::make_shared<CudaDevice>(api, 0);
  const AttentionProblem problem = small_problem(DType::kBF16, GetParam().causal, 4096);
  const ForwardPlan plan = plan_forward(problem, device->spec());
  EXPECT_TRUE(plan.steps.at(0).source.display_name.starts_with(GetParam().kernel));
  std::string reason;
  const auto op = prepare_or_say(plan, device, &reason);
  if (op == nullptr) GTEST_SKIP() << reason;
  const Calls prepared = take_driver_calls();
  EXPECT_EQ(prepared.count("cuModuleLoadDataEx"), 1u) << "the counter counts";

  ForwardArgs args;
  args.q = somewhere<void>(1);
  args.k = somewhere<void>(2);
  args.v = somewhere<void>(3);
  args.out = somewhere<void>(4);
  args.lse = somewhere<float>(5);
  args.workspace = somewhere<void>(6);
  args.workspace_bytes = plan.workspace.bytes();
  const int64_t mallocs = num_mallocs();
  op->execute(args);
  EXPECT_EQ(num_mallocs(), mallocs);
  expect_only_enqueues(take_driver_calls());
}

// Three launches, and no fill: the preprocess writes what must be 0.
TEST_P(DriverCalls, OfABackwardOnlyEnqueue) {
  const bool hopper = GetParam().major == 9;
  const DriverApi api = counting_driver(hopper ? idle_gpu<9>() : idle_gpu<10>());
  const auto device = std::make_shared<CudaDevice>(api, 0);
  const AttentionProblem problem = small_problem(DType::kBF16, GetParam().causal, 4096);
  const BackwardPlan plan = plan_backward(problem, device->spec());
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_TRUE(plan.steps.at(1).source.display_name.starts_with(GetParam().backward));
  std::string reason;
  const auto op = prepare_or_say(plan, device, &reason);
  if (op == nullptr) GTEST_SKIP() << reason;
  EXPECT_EQ(take_driver_calls().count("cuModuleLoadDataEx"), 1u) << "the counter counts";

  BackwardArgs args;
  args.q = somewhere<void>(1);
  args.k = somewhere<void>(2);
  args.v = somewhere<void>(3);
  args.out = somewhere<void>(4);
  args.lse = somewhere<float>(5);
  args.dout = somewhere<void>(6);
  args.dq = somewhere<void>(7);
  args.dk = somewhere<void>(8);
  args.dv = somewhere<void>(9);
  args.workspace = somewhere<void>(10);
  args.workspace_bytes = plan.workspace.bytes();
  const int64_t mallocs = num_mallocs();
  op->execute(args);
  EXPECT_EQ(num_mallocs(), mallocs);
  const Calls calls = take_driver_calls();
  expect_only_enqueues(calls, 3);
  EXPECT_EQ(calls.count("cuMemsetD32Async"), 0u);
}

// Rows behind the last packed sequence are nobody's, and no sequence has a query: kernels that
// count rows by the longest sequence have none to count.
TEST_P(DriverCalls, OfPackedSequencesWithoutQueriesAreNone) {
  const DriverApi api = counting_driver(GetParam().major == 9 ? idle_gpu<9>() : idle_gpu<10>());
  const auto device = std::make_shared<CudaDevice>(api, 0);
  ProblemDesc desc = small_problem(DType::kBF16, GetParam().causal, 4096);
  desc.layout_q = Layout::kPacked;
  desc.q = desc.out = {};
  desc.seqlen_q = 0;
  desc.total_q = 7;
  desc.num_splits = 2;
  const ForwardPlan plan = plan_forward(AttentionProblem::make(desc), device->spec());
  std::string reason;
  const auto op = prepare_or_say(plan, device, &reason);
  if (op == nullptr) GTEST_SKIP() << reason;
  take_driver_calls();

  ForwardArgs args;
  args.q = somewhere<void>(1);
  args.k = somewhere<void>(2);
  args.v = somewhere<void>(3);
  args.out = somewhere<void>(4);
  args.cu_seqlens_q = somewhere<int32_t>(5);
  args.workspace = somewhere<void>(6);
  args.workspace_bytes = plan.workspace.bytes();
  op->execute(args);
  EXPECT_EQ(take_driver_calls().count("cuLaunchKernelEx"), 0u);
}

constexpr Launch kLaunches[] = {{"hopper", 9, false, "fwd_sm90_", "bwd_sm90_"},
                                {"hopper_causal", 9, true, "fwd_sm90_", "bwd_sm90_"},
                                {"blackwell", 10, false, "fwd_sm100_", "bwd_sm100_"},
                                {"blackwell_causal", 10, true, "fwd_sm100_", "bwd_sm100_"}};
INSTANTIATE_TEST_SUITE_P(Kernels, DriverCalls, testing::ValuesIn(kLaunches),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fa4::internal
