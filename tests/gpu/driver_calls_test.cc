// The driver calls of an operation on a real GPU, counted between fa4 and the driver.
#include <gtest/gtest.h>

#include "attention/forward_op.h"
#include "counting_driver.h"
#include "device/cuda/cuda_device.h"

namespace fa4::internal {
namespace {

AttentionProblem causal_problem() {
  ProblemDesc desc;
  desc.batch = 4;
  desc.seqlen_q = desc.seqlen_k = 4096;
  desc.heads_q = 16;
  desc.heads_kv = 4;
  desc.head_dim = 128;
  desc.causal = true;
  return AttentionProblem::make(desc);
}

TEST(GpuDriverCalls, OfExecuteOnlyEnqueue) {
  if (driver_api() == nullptr) GTEST_SKIP() << driver_problem();
  if (Device::enumerate().empty()) GTEST_SKIP() << "the driver lists no GPU";
  static const DriverApi api = counting_driver(*driver_api());
  const auto device = std::make_shared<CudaDevice>(api, 0);
  const AttentionProblem problem = causal_problem();
  const Support support = query_support(problem, device->spec());
  if (!support.supported) GTEST_SKIP() << support.reason;
  const ForwardPlan plan = plan_forward(problem, device->spec());
  const auto op = prepare(plan, device);
  EXPECT_EQ(take_driver_calls().count("cuModuleLoadDataEx"), 1u) << "the counter counts";

  const auto bytes_of = [&](int64_t heads) {
    return static_cast<size_t>(problem.rows_q() * heads * problem.head_dim * 2);
  };
  const Buffer q(*device, bytes_of(problem.heads_q)), out(*device, bytes_of(problem.heads_q));
  const Buffer k(*device, bytes_of(problem.heads_kv)), v(*device, bytes_of(problem.heads_kv));
  const Buffer workspace(*device, plan.workspace.bytes());
  for (const Buffer* input : {&q, &k, &v}) device->fill(input->data(), 0, input->bytes());
  ForwardArgs args;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.out = out.data();
  args.workspace = workspace.data();
  args.workspace_bytes = plan.workspace.bytes();
  take_driver_calls();
  op->execute(args);
  expect_only_enqueues(take_driver_calls());
  device->synchronize(nullptr);
  EXPECT_EQ(take_driver_calls().count("cuStreamSynchronize"), 1u);
}

}  // namespace
}  // namespace fa4::internal
