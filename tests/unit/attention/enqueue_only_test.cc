// What execute asks of the driver and of malloc: to enqueue, and nothing that allocates,
// synchronises or waits.
#include <gtest/gtest.h>

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
  const char* kernel;  // begins so
};

class DriverCalls : public testing::TestWithParam<Launch> {};

TEST_P(DriverCalls, OfExecuteOnlyEnqueue) {
  const bool hopper = GetParam().major == 9;
  const DriverApi api = counting_driver(hopper ? idle_gpu<9>() : idle_gpu<10>());
  const auto device = std::make_shared<CudaDevice>(api, 0);
  const AttentionProblem problem = small_problem(DType::kBF16, GetParam().causal, 4096);
  const ForwardPlan plan = plan_forward(problem, device->spec());
  EXPECT_TRUE(plan.steps.at(0).source.display_name.starts_with(GetParam().kernel));
  std::shared_ptr<const ForwardOp> op;
  try {
    op = prepare(plan, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCompiler) throw;
    GTEST_SKIP() << error.what();
  }
  const Calls prepared = take_driver_calls();
  EXPECT_EQ(prepared.count("cuModuleLoadDataEx"), 1u) << "the counter counts";

  ForwardArgs args;  // never read: the driver runs nothing
  args.q = reinterpret_cast<void*>(uintptr_t{0x100000000});
  args.k = reinterpret_cast<void*>(uintptr_t{0x200000000});
  args.v = reinterpret_cast<void*>(uintptr_t{0x300000000});
  args.out = reinterpret_cast<void*>(uintptr_t{0x400000000});
  args.lse = reinterpret_cast<float*>(uintptr_t{0x500000000});
  args.workspace = reinterpret_cast<void*>(uintptr_t{0x600000000});
  args.workspace_bytes = plan.workspace.bytes();
  const int64_t mallocs = num_mallocs();
  op->execute(args);
  EXPECT_EQ(num_mallocs(), mallocs);
  expect_only_enqueues(take_driver_calls());
}

constexpr Launch kLaunches[] = {{"hopper", 9, false, "fwd_sm90_"},
                                {"hopper_causal", 9, true, "fwd_sm90_"},
                                {"blackwell", 10, false, "fwd_sm100_"},
                                {"blackwell_causal", 10, true, "fwd_sm100_"}};
INSTANTIATE_TEST_SUITE_P(Kernels, DriverCalls, testing::ValuesIn(kLaunches),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fa4::internal
