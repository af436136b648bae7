// The device room on a real GPU: memory, a kernel compiled here, tensor maps, events, capture.
#include "device/device.h"

#include <dlfcn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "core/error.h"
#include "device/cuda/cuda_device.h"
#include "jit/nvrtc_compiler.h"

namespace fa4::internal {
namespace {

constexpr const char* kSource = R"(#pragma once
struct Params { float* data; float factor; int count; };
extern "C" __global__ void scale(const __grid_constant__ Params p) {
  extern __shared__ float shared[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.count) shared[threadIdx.x] = p.data[i];
  __syncthreads();
  if (i < p.count) p.data[i] = shared[threadIdx.x] * p.factor;
}
extern "C" __global__ void cluster_rank(const __grid_constant__ Params p) {
  const unsigned rank = __clusterRelativeBlockRank();
  if (threadIdx.x == 0) p.data[blockIdx.x] = rank;
}
)";
struct Params {
  float* data;
  float factor;
  int count;
};
const EmbeddedFile kFiles[] = {{"kernels/test/scale.cuh", kSource, std::strlen(kSource)}};

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Device::enumerate().empty()) {
      GTEST_SKIP() << (driver_api() == nullptr ? driver_problem() : "the driver lists no GPU");
    }
    device_ = Device::open("cuda:0");
  }
  std::unique_ptr<Kernel> compile(const char* name, KernelImage::Kind kind, uint32_t smem) {
    const NvrtcCompiler compiler(open_nvrtc(nvrtc_candidates()), kFiles);
    return device_->load(
        compiler.compile({"test/scale.cuh", name, name}, device_->spec().architecture, kind), smem);
  }
  Buffer upload(const std::vector<float>& values) {
    Buffer buffer(*device_, values.size() * sizeof(float));
    device_->copy_to_device(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  }
  std::vector<float> download(const Buffer& buffer) {
    std::vector<float> values(buffer.bytes() / sizeof(float));
    device_->copy_to_host(values.data(), buffer.data(), buffer.bytes());
    return values;
  }

  std::shared_ptr<Device> device_;
};

TEST_F(GpuTest, OneObjectADevice) { EXPECT_EQ(Device::open("cuda:0"), device_); }

TEST_F(GpuTest, MemoryRoundTrip) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Buffer buffer = upload(values);
  EXPECT_EQ(download(buffer), values);
  device_->enqueue_zero(buffer.data(), 500 * sizeof(float), nullptr);
  std::fill(values.begin(), values.begin() + 500, 0.f);
  EXPECT_EQ(download(buffer), values);
  device_->fill(buffer.data(), 0, buffer.bytes());
  EXPECT_EQ(download(buffer), std::vector<float>(1000, 0.f));
}

TEST_F(GpuTest, TooMuchMemoryIsAnError) {
  try {
    device_->allocate(size_t{1} << 50);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
  }
}

TEST_F(GpuTest, LaunchesCubinAndPtxFromThreads) {
  if (!NvrtcCompiler::available()) GTEST_SKIP() << "NVRTC is not on this machine";
  for (const auto kind : {KernelImage::Kind::kCubin, KernelImage::Kind::kPtx}) {
    const auto kernel = compile("scale", kind, 100000);  // above the 48 KiB that need no asking
    const Buffer buffer = upload(std::vector<float>(1000, 1.f));
    const Params params{static_cast<float*>(buffer.data()), 2.f, 1000};
    LaunchConfig config;
    config.grid[0] = 4;
    config.block[0] = 256;
    config.dynamic_smem_bytes = 100000;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { kernel->launch(config, &params, sizeof params, nullptr); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(download(buffer), std::vector<float>(1000, 16.f));
  }
}

TEST_F(GpuTest, LaunchesClusters) {
  if (!NvrtcCompiler::available()) GTEST_SKIP() << "NVRTC is not on this machine";
  const auto kernel = compile("cluster_rank", KernelImage::Kind::kCubin, 0);
  const Buffer buffer = upload({9, 9, 9, 9});
  const Params params{static_cast<float*>(buffer.data()), 0, 0};
  LaunchConfig config;
  config.grid[0] = 4;
  config.block[0] = 32;
  config.cluster[0] = 2;
  kernel->launch(config, &params, sizeof params, nullptr);
  EXPECT_EQ(download(buffer), (std::vector<float>{0, 1, 0, 1}));
}

TEST_F(GpuTest, WrongArchitectureIsRefusedByName) {
  if (!NvrtcCompiler::available()) GTEST_SKIP() << "NVRTC is not on this machine";
  const char* other = device_->spec().architecture == "sm_90a" ? "sm_100a" : "sm_90a";
  const NvrtcCompiler compiler(open_nvrtc(nvrtc_candidates()), kFiles);
  const KernelImage image = compiler.compile({"test/scale.cuh", "scale", "scale"}, other);
  try {
    device_->load(image, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDriver);
    EXPECT_NE(std::string(error.what()).find(other), std::string::npos) << error.what();
  }
}

TEST_F(GpuTest, EncodesTensorMaps) {
  const Buffer buffer(*device_, 128 * 256 * 2);
  TensorMapDesc desc;
  desc.base = buffer.data();
  desc.rank = 2;
  desc.dims[0] = 128;
  desc.dims[1] = 256;
  desc.strides_bytes[0] = 256;
  desc.box[0] = 64;
  desc.box[1] = 64;
  alignas(64) unsigned char map[128] = {};
  device_->encode_tensor_map(desc, map);
  const unsigned char zeros[128] = {};
  EXPECT_NE(std::memcmp(map, zeros, sizeof map), 0);
  desc.strides_bytes[0] = 250;  // not a multiple of 16
  EXPECT_THROW(device_->encode_tensor_map(desc, map), Error);
}

TEST_F(GpuTest, EventsMeasureTime) {
  void* stream = device_->create_stream();
  const auto start = device_->create_event();
  const auto end = device_->create_event();
  const Buffer buffer(*device_, size_t{1} << 20);
  start->record(stream);
  end->record(stream);
  end->synchronize();
  EXPECT_GE(end->milliseconds_since(*start), 0.);
  device_->destroy_stream(stream);
}

TEST_F(GpuTest, SeesACapture) {
  const DriverApi& driver = *driver_api();
  CuContext context = nullptr;
  ASSERT_EQ(driver.primary_retain(&context, 0), kCuSuccess);
  const ContextScope scope(driver, context, "cuda:0");
  void* stream = device_->create_stream();
  EXPECT_FALSE(device_->is_capturing(stream));
  EXPECT_FALSE(device_->is_capturing(nullptr));
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr);
  const auto begin =
      reinterpret_cast<CuResult (*)(CuStream, int)>(dlsym(library, "cuStreamBeginCapture_v2"));
  const auto finish =
      reinterpret_cast<CuResult (*)(CuStream, void**)>(dlsym(library, "cuStreamEndCapture"));
  constexpr int kGlobal = 0;
  ASSERT_EQ(begin(stream, kGlobal), kCuSuccess);
  EXPECT_TRUE(device_->is_capturing(stream));
  EXPECT_TRUE(device_->is_capturing(nullptr));
  void* graph = nullptr;
  EXPECT_EQ(finish(stream, &graph), kCuSuccess);
  EXPECT_FALSE(device_->is_capturing(stream));
  device_->destroy_stream(stream);
}

}  // namespace
}  // namespace fa4::internal
