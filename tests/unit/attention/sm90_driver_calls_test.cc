// What execute asks of the driver and of malloc: to enqueue, and nothing that allocates,
// synchronises or waits.
#include <gtest/gtest.h>

#include "attention/forward_op.h"
#include "core/error.h"
#include "counting_driver.h"
#include "device/cuda/cuda_device.h"
#include "malloc_counter.h"
#include "small_problem.h"

namespace fa4::internal {
namespace {

using Calls = std::map<std::string, int>;

// A Hopper that accepts everything and runs nothing.
DriverApi fake_hopper() {
  DriverApi api;
  api.device_name = [](char* name, int, CuDevice) {
    name[0] = '\0';
    return kCuSuccess;
  };
  api.device_attribute = [](int* value, int attribute, CuDevice) {
    *value = attribute == kCuComputeMajor ? 9 : attribute == kCuNumSms ? 132 : 0;
    if (attribute == kCuSmemPerBlockOptin) *value = 232448;
    return kCuSuccess;
  };
  api.context_current = [](CuContext* context) {
    *context = nullptr;
    return kCuSuccess;
  };
  api.stream_is_capturing = [](CuStream, int* status) {
    *status = 0;
    return kCuSuccess;
  };
  return api;
}

class DriverCalls : public testing::TestWithParam<bool> {};

TEST_P(DriverCalls, OfExecuteOnlyEnqueue) {
  static const DriverApi api = counting_driver(fake_hopper());
  const auto device = std::make_shared<CudaDevice>(api, 0);
  const AttentionProblem problem = small_problem(DType::kBF16, GetParam(), 4096);
  const ForwardPlan plan = plan_forward(problem, device->spec());
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
  args.workspace_bytes = plan.workspace_bytes;
  const int64_t mallocs = num_mallocs();
  op->execute(args);
  EXPECT_EQ(num_mallocs(), mallocs);
  expect_only_enqueues(take_driver_calls());
}

INSTANTIATE_TEST_SUITE_P(Masks, DriverCalls, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "causal" : "full"; });

}  // namespace
}  // namespace fa4::internal
