// fa4_forward over a driver that counts: what it loads, what it unloads, what a capture allows.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "capi/handles.h"
#include "counting_driver.h"
#include "device/cuda/cuda_device.h"
#include "fa4/attention.h"
#include "idle_gpu.h"

namespace fa4::internal {
namespace {

constexpr int kMoreProblemsThanADeviceKeeps = 70;
const CuStream kStream = reinterpret_cast<CuStream>(uintptr_t{0x7000});

class KeptKernels : public testing::Test {
 protected:
  void SetUp() override {
    take_driver_calls();
    device_ = std::make_shared<CudaDevice>(api_, 0);
  }

  std::unique_ptr<fa4_device> open() const {
    auto handle = std::make_unique<fa4_device>();
    handle->spec = device_->spec();
    handle->device = device_;
    return handle;
  }

  static fa4::Problem problem(int64_t seqlen) {
    fa4::Problem problem;
    problem.dtype = FA4_BF16;
    problem.batch = 2;
    problem.seqlen_q = problem.seqlen_k = seqlen;
    problem.heads_q = problem.heads_kv = 4;
    problem.head_dim = 64;
    return problem;
  }

  // Pointers that nobody reads: the GPU runs nothing.
  static fa4::ForwardArgs args() {
    fa4::ForwardArgs args;
    args.q = reinterpret_cast<void*>(uintptr_t{0x100000000});
    args.k = reinterpret_cast<void*>(uintptr_t{0x200000000});
    args.v = reinterpret_cast<void*>(uintptr_t{0x300000000});
    args.out = reinterpret_cast<void*>(uintptr_t{0x400000000});
    args.workspace = reinterpret_cast<void*>(uintptr_t{0x500000000});
    args.workspace_bytes = 4096;
    args.stream = kStream;
    return args;
  }

  static fa4_status forward(fa4_device& device, int64_t seqlen) {
    const fa4::Problem wanted = problem(seqlen);
    const fa4::ForwardArgs given = args();
    return fa4_forward(&device, &wanted, &given);
  }

  static inline const DriverApi api_ = counting_driver(idle_gpu<9>());
  std::shared_ptr<Device> device_;
};

#define SKIP_WITHOUT_COMPILER(status) \
  if ((status) == FA4_COMPILER) GTEST_SKIP() << fa4_last_error()

TEST_F(KeptKernels, ProblemsInRotationLoadEachImageOnceAndUnloadNothing) {
  std::unique_ptr<fa4_device> device = open();
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kMoreProblemsThanADeviceKeeps; ++i) {
      const fa4_status status = forward(*device, 1024 + i);
      SKIP_WITHOUT_COMPILER(status);
      ASSERT_EQ(status, FA4_OK) << fa4_last_error();
    }
  }
  fa4_close_device(device.release());
  const std::map<std::string, int> calls = take_driver_calls();
  EXPECT_EQ(calls.at("cuModuleLoadDataEx"), 1) << "all problems run on one kernel";
  EXPECT_EQ(calls.count("cuModuleUnload"), 0u) << "launches may still run";
  EXPECT_EQ(calls.at("cuLaunchKernelEx"), 3 * kMoreProblemsThanADeviceKeeps);
}

TEST_F(KeptKernels, AnotherHandleFindsWhatOneLoaded) {
  std::unique_ptr<fa4_device> device = open();
  SKIP_WITHOUT_COMPILER(forward(*device, 1024));
  fa4_close_device(device.release());
  device = open();
  EXPECT_EQ(forward(*device, 1500), FA4_OK) << fa4_last_error();
  EXPECT_EQ(take_driver_calls().at("cuModuleLoadDataEx"), 1);
}

TEST_F(KeptKernels, ANewProblemJoinsACaptureWhenItsKernelIsLoaded) {
  std::unique_ptr<fa4_device> device = open();
  SKIP_WITHOUT_COMPILER(forward(*device, 1024));
  captured_stream = kStream;
  const fa4_status loaded = forward(*device, 1500);
  const std::string loaded_text = fa4_last_error();
  fa4::Problem other = problem(1024);
  other.softcap = 30;
  const fa4::ForwardArgs given = args();
  const fa4_status unloaded = fa4_forward(device.get(), &other, &given);
  const std::string unloaded_text = fa4_last_error();
  captured_stream = kNoStream;
  EXPECT_EQ(loaded, FA4_OK) << loaded_text;
  EXPECT_EQ(unloaded, FA4_STREAM_CAPTURE) << unloaded_text;
  EXPECT_NE(unloaded_text.find("softcap is not loaded"), std::string::npos) << unloaded_text;
  EXPECT_EQ(take_driver_calls().at("cuModuleLoadDataEx"), 1) << "a load would break the capture";
}

}  // namespace
}  // namespace fa4::internal
