// What is asked of NCCL, and of a driver beside it, by tables that stand between.
#include <gtest/gtest.h>

#include "counting_driver.h"
#include "device/cuda/cuda_device.h"
#include "distributed/context_op.h"
#include "distributed/nccl_communicator.h"
#include "idle_gpu.h"
#include "malloc_counter.h"

namespace fa4::internal {
namespace {

// Remembers the calls without allocating.
struct Calls {
  int starts = 0, ends = 0, sends = 0, receives = 0;
  bool outside_of_group = false;
  NcclApi::Result send_result = 0, end_result = 0;
};
Calls calls;

NcclApi recording_nccl() {
  NcclApi api;
  api.error_string = [](NcclApi::Result) { return "text of NCCL"; };
  api.comm_count = [](NcclApi::Comm, int* count) { return *count = 2, 0; };
  api.comm_rank = [](NcclApi::Comm, int* rank) { return *rank = 1, 0; };
  api.comm_device = [](NcclApi::Comm, int* device) { return *device = 0, 0; };
  api.group_start = [] { return ++calls.starts, 0; };
  api.group_end = [] { return ++calls.ends, calls.end_result; };
  api.send = [](const void*, size_t, int, int, NcclApi::Comm, NcclApi::Stream) {
    calls.outside_of_group |= calls.starts != calls.ends + 1;
    return ++calls.sends, calls.send_result;
  };
  api.receive = [](void*, size_t, int, int, NcclApi::Comm, NcclApi::Stream) {
    calls.outside_of_group |= calls.starts != calls.ends + 1;
    return ++calls.receives, 0;
  };
  return api;
}

class NcclTest : public testing::Test {
 protected:
  NcclTest() { calls = {}; }
  const NcclApi api_ = recording_nccl();
  const std::shared_ptr<Communicator> communicator_ = nccl_communicator(api_, nullptr);
};

AttentionProblem whole_problem() {
  ProblemDesc desc;
  desc.batch = 2;
  desc.seqlen_q = desc.seqlen_k = 1024;
  desc.heads_q = desc.heads_kv = 4;
  desc.head_dim = 128;
  desc.causal = true;
  return AttentionProblem::make(desc);
}

void* address(uintptr_t number) { return reinterpret_cast<void*>(number << 32); }

TEST_F(NcclTest, AnExecutionOnlyEnqueues) {
  const DriverApi driver = counting_driver(idle_gpu<9>());
  const auto device = std::make_shared<CudaDevice>(driver, 0);
  const ContextForwardPlan plan =
      plan_context_forward(whole_problem(), device->spec(), communicator_, {});
  std::unique_ptr<ContextForwardOp> op;
  try {
    op = std::make_unique<ContextForwardOp>(plan, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCompiler) throw;
    GTEST_SKIP() << error.what();
  }
  take_driver_calls();
  ForwardArgs args;  // never read: the driver runs nothing
  args.q = address(1), args.k = address(2), args.v = address(3), args.out = address(4);
  args.lse = static_cast<float*>(address(5));
  args.workspace = address(6);
  args.workspace_bytes = plan.workspace.bytes();
  const int64_t mallocs = num_mallocs();
  op->execute(args);
  EXPECT_EQ(num_mallocs(), mallocs);
  std::map<std::string, int> asked = take_driver_calls();
  EXPECT_GT(asked["cuMemcpy2DAsync_v2"], 0);
  asked.erase("cuMemcpy2DAsync_v2");
  asked.erase("cuMemcpyDtoDAsync_v2");
  expect_only_enqueues(asked);
  EXPECT_EQ(calls.starts, 2);
  EXPECT_EQ(calls.ends, 2);
  EXPECT_FALSE(calls.outside_of_group);
  // q, k, v and out by sequence and chunk, lse by sequence
  EXPECT_EQ(calls.receives, 2 * (4 * 2 + 1));
  EXPECT_EQ(calls.sends, calls.receives);
}

// The error of one exchange over two bytes.
std::string error_of(Communicator& communicator) {
  ExchangeStep step;
  step.sends = {{0, {Place::kQ}, 1}, {0, {Place::kQ}, 1}};
  step.receives = {{0, {Place::kOut}, 1}, {0, {Place::kOut}, 1}};
  const auto memory = host_memory(std::make_shared<ThreadPool>(1));
  try {
    communicator.exchange(step, {}, *memory, nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDriver);
    return error.what();
  }
  return "";
}

TEST_F(NcclTest, AFailureEndsTheGroupAndSaysWhat) {
  EXPECT_EQ(error_of(*communicator_), "");
  calls.send_result = 5;
  EXPECT_EQ(error_of(*communicator_),
            "ncclSend on rank 1: text of NCCL (5); NCCL_DEBUG=WARN makes NCCL say more");
  EXPECT_EQ(calls.sends, 3) << "none behind the one that failed";
  calls.send_result = 0;
  calls.end_result = 3;
  EXPECT_EQ(error_of(*communicator_),
            "ncclGroupEnd on rank 1: text of NCCL (3); NCCL_DEBUG=WARN makes NCCL say more");
  EXPECT_EQ(calls.starts, 3);
  EXPECT_EQ(calls.ends, 3);
}

TEST_F(NcclTest, MovesMemoryOfItsOwnGpu) {
  DeviceSpec device;
  device.kind = DeviceKind::kCuda;
  device.name = "cuda:0";
  communicator_->check_device(device);
  device.name = "cuda:1";
  EXPECT_THROW(communicator_->check_device(device), Error);
  EXPECT_THROW(communicator_->check_device(host_cpu_spec()), Error);
}

TEST(NcclLibrary, SaysWhatWasTried) {
  try {
    open_nccl({"/nowhere/libnccl.so.2", "libc.so.6"});
    ADD_FAILURE() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeviceUnavailable);
    const std::string text = error.what();
    EXPECT_NE(text.find("/nowhere/libnccl.so.2"), std::string::npos) << text;
    EXPECT_NE(text.find("libc.so.6: has no ncclGetErrorString"), std::string::npos) << text;
    EXPECT_NE(text.find("accepted: "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace fa4::internal
