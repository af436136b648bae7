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
  NcclApi::Stream stream = nullptr;  // of the last message
  bool on_several_streams = false;
  NcclApi::Result send_result = 0, end_result = 0;
};
Calls calls;

void remember(NcclApi::Stream stream) {
  calls.outside_of_group |= calls.starts != calls.ends + 1;
  calls.on_several_streams |= calls.sends + calls.receives > 0 && stream != calls.stream;
  calls.stream = stream;
}

NcclApi recording_nccl() {
  NcclApi api;
  api.error_string = [](NcclApi::Result) { return "text of NCCL"; };
  api.comm_count = [](NcclApi::Comm, int* count) { return *count = 2, 0; };
  api.comm_rank = [](NcclApi::Comm, int* rank) { return *rank = 1, 0; };
  api.comm_device = [](NcclApi::Comm, int* device) { return *device = 0, 0; };
  api.group_start = [] { return ++calls.starts, 0; };
  api.group_end = [] { return ++calls.ends, calls.end_result; };
  api.send = [](const void*, size_t, int, int, NcclApi::Comm, NcclApi::Stream stream) {
    remember(stream);
    return ++calls.sends, calls.send_result;
  };
  api.receive = [](void*, size_t, int, int, NcclApi::Comm, NcclApi::Stream stream) {
    remember(stream);
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

// Where the attention of an execution was launched.
CuStream launched_on = nullptr;
// The stream that an operation gets for its exchanges.
CuStream const kUrgent = address(99);

DriverApi remembering_gpu() {
  DriverApi api = idle_gpu<9>();
  api.launch = [](const CuLaunchConfig* config, CuFunction, void**, void**) {
    launched_on = config->stream;
    return kCuSuccess;
  };
  api.stream_create_with_priority = [](CuStream* stream, unsigned flags, int priority) {
    EXPECT_EQ(flags, kCuStreamNonBlocking);
    EXPECT_EQ(priority, kCuHighestPriority);
    *stream = kUrgent;
    return kCuSuccess;
  };
  return api;
}

// A forward of two ranks on a driver that runs nothing.
class EnqueueTest : public NcclTest {
 protected:
  // False, with the test skipped, where kernels cannot be compiled.
  bool prepare(int slices, ContextMethod method = ContextMethod::kAuto) {
    const ContextForwardPlan plan = plan_context_forward(
        whole_problem(), device_->spec(), communicator_, {.method = method, .slices = slices});
    try {
      op_ = std::make_unique<ContextForwardOp>(plan, device_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCompiler) throw;
      skip_ = error.what();
      return false;
    }
    args_.q = address(1), args_.k = address(2), args_.v = address(3), args_.out = address(4);
    args_.lse = static_cast<float*>(address(5));
    args_.workspace = address(6);
    args_.workspace_bytes = plan.workspace.bytes();
    take_driver_calls();
    return true;
  }
  // What it asks of the driver, by name, but for copies.
  std::map<std::string, int> execute(void* stream) {
    calls = {};
    args_.stream = stream;
    const int64_t mallocs = num_mallocs();
    op_->execute(args_);
    EXPECT_EQ(num_mallocs(), mallocs);
    EXPECT_FALSE(calls.outside_of_group);
    EXPECT_FALSE(calls.on_several_streams);
    EXPECT_EQ(calls.starts, calls.ends);
    EXPECT_EQ(calls.sends, calls.receives);
    EXPECT_EQ(launched_on, stream);
    std::map<std::string, int> asked = take_driver_calls();
    EXPECT_GT(asked["cuMemcpy2DAsync_v2"], 0);
    asked.erase("cuMemcpy2DAsync_v2");
    asked.erase("cuMemcpyDtoDAsync_v2");
    return asked;
  }

  const DriverApi driver_ = counting_driver(remembering_gpu());
  const std::shared_ptr<Device> device_ = std::make_shared<CudaDevice>(driver_, 0);
  std::unique_ptr<ContextForwardOp> op_;
  ForwardArgs args_;  // never read: the driver runs nothing
  std::string skip_;
};

// q, k, v and out by sequence and chunk, lse by sequence.
constexpr int kMessagesOfSlice = 2 * (4 * 2 + 1);

TEST_F(EnqueueTest, OneSliceGoesOnTheCallersStream) {
  if (!prepare(1)) GTEST_SKIP() << skip_;
  expect_only_enqueues(execute(address(7)), 1);
  EXPECT_EQ(calls.starts, 2);
  EXPECT_EQ(calls.receives, kMessagesOfSlice);
  EXPECT_EQ(calls.stream, address(7));
}

TEST_F(EnqueueTest, SlicesGoOnTwoStreams) {
  if (!prepare(2)) GTEST_SKIP() << skip_;
  std::map<std::string, int> asked = execute(address(7));
  // At the beginning and the end, before each slice's attention, and behind it.
  EXPECT_EQ(asked["cuEventRecord"], 2 + 2 * 2);
  EXPECT_EQ(asked["cuStreamWaitEvent"], asked["cuEventRecord"]);
  for (const char* name : {"cuEventRecord", "cuStreamWaitEvent", "cuStreamIsCapturing"}) {
    asked.erase(name);
  }
  expect_only_enqueues(asked, 2);
  EXPECT_EQ(calls.starts, 4);  // each slice comes, and goes
  EXPECT_EQ(calls.receives, 2 * kMessagesOfSlice);
  EXPECT_EQ(calls.stream, kUrgent);
}

TEST_F(EnqueueTest, ARingGoesOnTwoStreams) {
  if (!prepare(1, ContextMethod::kRing)) GTEST_SKIP() << skip_;
  std::map<std::string, int> asked = execute(address(7));
  EXPECT_EQ(asked["cuStreamWaitEvent"], asked["cuEventRecord"]);
  for (const char* name : {"cuEventRecord", "cuStreamWaitEvent", "cuStreamIsCapturing"}) {
    asked.erase(name);
  }
  expect_only_enqueues(asked, 2 + 2);  // attention of two steps, a merge of each chunk
  EXPECT_EQ(calls.starts, 1);
  EXPECT_EQ(calls.receives, 2);  // k and v
  EXPECT_EQ(calls.stream, kUrgent);
}

// The caller may free the workspace when his stream is through.
TEST_F(EnqueueTest, TheCallersStreamWaitsForAnExecutionThatFailed) {
  if (!prepare(2)) GTEST_SKIP() << skip_;
  calls.send_result = 5;
  EXPECT_THROW(op_->execute(args_), Error);
  const std::map<std::string, int> asked = take_driver_calls();
  EXPECT_EQ(asked.count("cuLaunchKernelEx"), 0u);
  EXPECT_EQ(asked.at("cuStreamWaitEvent"), 2) << "at the beginning, and at the end";
}

// Until a capture ends, the stream of the exchanges is in it.
TEST_F(EnqueueTest, DuringACaptureOtherStreamsDoWithoutTheSecond) {
  if (!prepare(2)) GTEST_SKIP() << skip_;
  execute(address(7));
  captured_stream = kUrgent;
  execute(address(7));
  EXPECT_EQ(calls.stream, kUrgent) << "the capture itself goes on";
  std::map<std::string, int> asked = execute(address(8));
  EXPECT_EQ(calls.stream, address(8));
  EXPECT_EQ(asked.count("cuEventRecord"), 0u);
  captured_stream = kNoStream;
  execute(address(8));
  EXPECT_EQ(calls.stream, kUrgent);
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
