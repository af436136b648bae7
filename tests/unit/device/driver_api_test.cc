#include "device/cuda/driver_api.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "device/device.h"
#include "fake_driver.h"

namespace fa4::internal {
namespace {

TEST(DriverApi, NamesTheLibraryThatIsMissing) {
  DriverApi api;
  std::string problem;
  EXPECT_FALSE(open_driver("/nowhere/libcuda.so.1", api, problem));
  EXPECT_EQ(problem, "no CUDA driver (/nowhere/libcuda.so.1) on this machine");
}

TEST(DriverApi, LibraryIsLibcudaUnlessNamed) {
  DriverApi api;
  std::string problem;
  if (open_driver("", api, problem)) GTEST_SKIP() << "this machine has a CUDA driver";
  EXPECT_NE(problem.find("(libcuda.so.1)"), std::string::npos) << problem;
}

TEST(DriverApi, NamesTheFunctionThatIsMissing) {
  DriverApi api;
  std::string problem;
  EXPECT_FALSE(open_driver("libm.so.6", api, problem));
  EXPECT_NE(problem.find("libm.so.6"), std::string::npos) << problem;
  EXPECT_NE(problem.find("it has no cu"), std::string::npos) << problem;
}

// cuInit's answer where CUDA_VISIBLE_DEVICES is empty is a result like any other: the library goes
// on without GPUs.
TEST(DriverApi, SaysWhyTheDriverDoesNotStart) {
  fake = FakeDriver();
  const DriverApi api = fake_driver_api();
  std::string problem;
  EXPECT_TRUE(start_driver(api, problem));
  EXPECT_EQ(problem, "");
  fake.failing["init"] = kCuNoDevice;
  EXPECT_FALSE(start_driver(api, problem));
  EXPECT_EQ(
      problem,
      "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES hides those that it does not name)");
  fake.failing["init"] = 999;
  EXPECT_FALSE(start_driver(api, problem));
  EXPECT_EQ(problem, "the CUDA driver does not start: cuInit: CUDA_ERROR_OF_TEST");
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
  for (const char* name : {"cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:-0", "cuda:00", "cuda:0x",
                           "cuda:99999999999", "gpu:0", ""}) {
    const std::string text = open_error(name);
    EXPECT_NE(
        text.find("not the name of a device: cpu, cuda:N or an emulated one's; available: cpu"),
        std::string::npos)
        << text;
  }
  EXPECT_EQ(open_error("").find("\"\": not the name"), 0u);
  const std::string shown(100, 'x'), text = open_error(std::string(5000, 'x').c_str());
  EXPECT_EQ(text.find(shown), 0u);
  EXPECT_EQ(text.find("...: not the name"), shown.size());
  EXPECT_NE(open_error("emulated:h100").find("available: cpu"), std::string::npos);
}

// No driver, or one that finds no GPU.
TEST(DeviceOpen, WithoutADriverSaysSo) {
  if (driver_api() != nullptr) GTEST_SKIP() << "this machine has a CUDA driver and a GPU";
  EXPECT_TRUE(Device::enumerate().empty());
  EXPECT_EQ(open_error("cuda:0"),
            "cuda:0: " + driver_problem() + "; available: cpu, emulated:h200, emulated:b200");
}

TEST(DeviceOpen, BeyondTheLastOneNamesThose) {
  if (driver_api() == nullptr) GTEST_SKIP() << driver_problem();
  const std::string text = open_error("cuda:1000");
  EXPECT_EQ(text.find("cuda:1000: no such device; available: cpu"), 0u) << text;
}

}  // namespace
}  // namespace fa4::internal
