// What the command's operations hold on a GPU is given back when the driver fails, too.
#include "device_side.h"

#include <gtest/gtest.h>

#include "../device/fake_driver.h"
#include "core/error.h"
#include "device/cuda/cuda_device.h"

namespace fa4::cli {
namespace {

using fa4::internal::CudaDevice;
using fa4::internal::Error;
using fa4::internal::fake;
using fa4::internal::FakeDriver;

class DeviceSideTest : public testing::Test {
 protected:
  void SetUp() override { fake = FakeDriver(); }

  const fa4::internal::DriverApi api_ = fa4::internal::fake_driver_api();
  const std::shared_ptr<CudaDevice> device_ = std::make_shared<CudaDevice>(api_, 0);
};

// After a kernel has failed every call of the driver does; the first failure is what is reported.
TEST_F(DeviceSideTest, EndsQuietlyAfterAFailure) {
  {
    const DeviceSide side({device_->spec(), device_}, 256);
    fake.failing["stream_destroy"] = fake.failing["memory_free"] = 700;
  }
  EXPECT_EQ(fake.count("stream_destroy"), 1);
  EXPECT_EQ(fake.count("memory_free"), 1);
}

TEST_F(DeviceSideTest, KeepsNoStreamWithoutItsWorkspace) {
  fake.failing["memory_allocate"] = fa4::internal::kCuOutOfMemory;
  EXPECT_THROW(DeviceSide({device_->spec(), device_}, 256), Error);
  EXPECT_EQ(fake.count("stream_destroy"), 1);
}

}  // namespace
}  // namespace fa4::cli
