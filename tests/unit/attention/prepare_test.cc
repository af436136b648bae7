#include <gtest/gtest.h>

#include "attention/forward_op.h"
#include "core/error.h"
#include "device/cuda/cuda_device.h"
#include "small_problem.h"

namespace fa4::internal {
namespace {

// A driver on which some stream is being captured: the legacy one, or this thread's own.
template <uintptr_t kCaptured>
DriverApi capturing_driver() {
  DriverApi api;
  api.device_get = [](CuDevice*, int) { return kCuSuccess; };
  api.device_name = [](char*, int, CuDevice) { return kCuSuccess; };
  api.device_attribute = [](int* value, int attribute, CuDevice) {
    *value = attribute == kCuComputeMajor ? 9 : 0;
    return kCuSuccess;
  };
  api.primary_retain = [](CuContext*, CuDevice) { return kCuSuccess; };
  api.context_current = [](CuContext* context) {
    *context = nullptr;
    return kCuSuccess;
  };
  api.stream_is_capturing = [](CuStream stream, int* status) {
    *status = reinterpret_cast<uintptr_t>(stream) == kCaptured ? 1 : 0;
    return kCuSuccess;
  };
  return api;
}

ErrorCode code_of_prepare(const std::shared_ptr<Device>& device) {
  const ForwardPlan plan = plan_forward(small_problem(DType::kBF16, true), h200_spec());
  try {
    prepare(plan, device);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode{};
}

TEST(Prepare, IsRefusedDuringCapture) {
  static const DriverApi kLegacy = capturing_driver<0>();
  static const DriverApi kPerThread = capturing_driver<2>();
  EXPECT_EQ(code_of_prepare(std::make_shared<CudaDevice>(kLegacy, 0)), ErrorCode::kStreamCapture);
  EXPECT_EQ(code_of_prepare(std::make_shared<CudaDevice>(kPerThread, 0)),
            ErrorCode::kStreamCapture);
}

TEST(Prepare, OfAGpuPlanNeedsTheDevice) {
  EXPECT_EQ(code_of_prepare(nullptr), ErrorCode::kDeviceUnavailable);
}

}  // namespace
}  // namespace fa4::internal
