#include "device/cuda/driver_api.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "device/device.h"

namespace fa4::internal {
namespace {

TEST(DriverApi, NamesTheLibraryThatIsMissing) {
  DriverApi api;
  std::string problem;
  EXPECT_FALSE(open_driver("/nowhere/libcuda.so.1", api, problem));
  EXPECT_EQ(problem, "no CUDA driver (/nowhere/libcuda.so.1) on this machine");
}

TEST(DriverApi, NamesTheFunctionThatIsMissing) {
  DriverApi api;
  std::string problem;
  EXPECT_FALSE(open_driver("libm.so.6", api, problem));
  EXPECT_NE(problem.find("libm.so.6"), std::string::npos) << problem;
  EXPECT_NE(problem.find("it has no cu"), std::string::npos) << problem;
}

std::string open_error(const char* name) {
  try {
    Device::open(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeviceUnavailable) << error.what();
    return error.what();
  }
  return {};
}

TEST(DeviceOpen, NamesWhatIsAccepted) {
  for (const char* name :
       {"cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:0x", "cuda:99999999999", "gpu:0", ""}) {
    const std::string text = open_error(name);
    EXPECT_NE(text.find("not the name of a GPU, which is cuda:N; available: cpu"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(open_error("emulated:h100").find("available: cpu"), std::string::npos);
}

TEST(DeviceOpen, WithoutADriverSaysSo) {
  if (driver_api() != nullptr) GTEST_SKIP() << "this machine has a CUDA driver";
  EXPECT_TRUE(Device::enumerate().empty());
  EXPECT_EQ(open_error("cuda:0"),
            "cuda:0: no CUDA driver (libcuda.so.1) on this machine; available: cpu, emulated:h200, "
            "emulated:b200");
}

TEST(DeviceOpen, BeyondTheLastOneNamesThose) {
  if (driver_api() == nullptr) GTEST_SKIP() << driver_problem();
  const std::string text = open_error("cuda:1000");
  EXPECT_EQ(text.find("cuda:1000: no such device; available: cpu"), 0u) << text;
}

}  // namespace
}  // namespace fa4::internal
