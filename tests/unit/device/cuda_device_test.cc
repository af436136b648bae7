// CudaDevice over a driver that remembers what it was asked.
#include "device/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include "fake_driver.h"

namespace fa4::internal {
namespace {

// The message of the Error that `action` throws, after checking its code.
template <class Action>
std::string error_of(ErrorCode code, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override { fake = FakeDriver(); }

  CudaDevice open() const { return CudaDevice(api_, 0); }
  static KernelImage image() {
    KernelImage image;
    image.bytes = {1};
    image.entry = "_Z3fwd";
    image.display_name = "fwd";
    image.architecture = "sm_90a";
    return image;
  }

  const DriverApi api_ = fake_driver_api();
};

TEST_F(CudaDeviceTest, DescribesItself) {
  const CudaDevice device = open();
  EXPECT_EQ(device.spec().name, "cuda:0");
  EXPECT_EQ(device.spec().kind, DeviceKind::kCuda);
  EXPECT_EQ(device.spec().model, "Fake GPU");
  EXPECT_EQ(device.spec().architecture, "sm_90a");
  EXPECT_EQ(device.spec().num_sms, 132);
  EXPECT_EQ(device.spec().l2_bytes, 1000u);
  EXPECT_NEAR(device.spec().memory_bandwidth, 3.35e12, 0.01e12);
  EXPECT_EQ(device.spec().smem_per_block_bytes, 232448u);
}

TEST_F(CudaDeviceTest, NamesTheArchitectureThatKernelsAreCompiledFor) {
  const std::tuple<int, int, const char*> rows[] = {
      {9, 0, "sm_90a"}, {10, 0, "sm_100a"}, {10, 3, "sm_103a"}, {8, 0, "sm_80"}, {12, 1, "sm_121"}};
  for (const auto& [major, minor, name] : rows) {
    fake.compute_major = major;
    fake.compute_minor = minor;
    EXPECT_EQ(cuda_spec(api_, 0).architecture, name);
  }
  EXPECT_EQ(fake.count("primary_retain"), 0);
}

TEST_F(CudaDeviceTest, PushesItsContextOnlyWhenAnotherIsCurrent) {
  CudaDevice device = open();
  device.synchronize(nullptr);
  EXPECT_EQ(fake.count("context_push"), 1);
  EXPECT_EQ(fake.count("context_pop"), 1);
  EXPECT_EQ(fake.current, nullptr);
  fake.current = kFakeContext;
  device.synchronize(nullptr);
  EXPECT_EQ(fake.count("context_push"), 1);
  EXPECT_EQ(fake.current, kFakeContext);
}

TEST_F(CudaDeviceTest, PopsItsContextAfterAnError) {
  CudaDevice device = open();
  fake.failing["stream_synchronize"] = 700;
  EXPECT_THROW(device.synchronize(nullptr), Error);
  EXPECT_EQ(fake.current, nullptr);
}

TEST_F(CudaDeviceTest, LaunchIsOneDriverCallBesidesTheContext) {
  CudaDevice device = open();
  const auto kernel = device.load(image(), 200000);
  EXPECT_EQ(fake.max_dynamic_smem, 200000);
  fake.current = kFakeContext;
  fake.calls.clear();
  LaunchConfig config;
  config.grid[0] = 132;
  config.block[0] = 384;
  config.dynamic_smem_bytes = 200000;
  const char param[] = "the parameter";
  kernel->launch(config, param, sizeof param, reinterpret_cast<void*>(0x3000));
  EXPECT_EQ(fake.calls, (std::vector<std::string>{"context_current", "launch"}));
  EXPECT_EQ(fake.launch.grid[0], 132u);
  EXPECT_EQ(fake.launch.grid[2], 1u);
  EXPECT_EQ(fake.launch.block[0], 384u);
  EXPECT_EQ(fake.launch.shared_bytes, 200000u);
  EXPECT_EQ(fake.launch.stream, reinterpret_cast<void*>(0x3000));
  EXPECT_EQ(fake.launch.num_attributes, 0u);
  EXPECT_EQ(fake.launch_param, param);
}

TEST_F(CudaDeviceTest, ClusterIsAskedForWhenItIsMoreThanOneBlock) {
  CudaDevice device = open();
  const auto kernel = device.load(image(), 0);
  LaunchConfig config;
  config.cluster[0] = 2;
  kernel->launch(config, "p", 2, nullptr);
  ASSERT_EQ(fake.launch.num_attributes, 1u);
  EXPECT_EQ(fake.launch_attribute.id, kCuLaunchAttributeCluster);
  EXPECT_EQ(fake.launch_attribute.value.cluster.x, 2u);
  EXPECT_EQ(fake.launch_attribute.value.cluster.y, 1u);
  EXPECT_EQ(fake.launch_attribute.value.cluster.z, 1u);
}

TEST_F(CudaDeviceTest, FailedLoadSaysWhatAndUnloads) {
  CudaDevice device = open();
  fake.failing["module_load"] = 209;
  std::string text = error_of(ErrorCode::kDriver, [&] { device.load(image(), 0); });
  for (const char* part : {"cuda:0", "fwd", "compiled for sm_90a", "ptxas says no",
                           "CUDA_ERROR_OF_TEST 209", "text of the driver"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(fake.count("module_unload"), 0);

  fake.failing = {{"function_set_attribute", 1}};
  text = error_of(ErrorCode::kDriver, [&] { device.load(image(), 300000); });
  EXPECT_NE(text.find("300000 bytes of dynamic shared memory"), std::string::npos) << text;
  EXPECT_NE(text.find("232448"), std::string::npos) << text;
  EXPECT_EQ(fake.count("module_unload"), 1);
}

TEST_F(CudaDeviceTest, KernelUnloadsItself) {
  CudaDevice device = open();
  device.load(image(), 0).reset();
  EXPECT_EQ(fake.count("module_unload"), 1);
}

TEST_F(CudaDeviceTest, ErrorsHaveTheirCodes) {
  CudaDevice device = open();
  fake.failing = {{"memory_allocate", 2}, {"stream_synchronize", 900}, {"event_create", 700}};
  const std::string text = error_of(ErrorCode::kOutOfMemory, [&] { device.allocate(12345); });
  EXPECT_EQ(text,
            "cuda:0: cuMemAlloc of 12345 bytes: CUDA_ERROR_OUT_OF_MEMORY 2 (text of the driver)");
  error_of(ErrorCode::kStreamCapture, [&] { device.synchronize(nullptr); });
  error_of(ErrorCode::kDriver, [&] { device.create_event(); });
}

TEST_F(CudaDeviceTest, KnowsACapture) {
  const CudaDevice device = open();
  EXPECT_FALSE(device.is_capturing(nullptr));
  fake.capture_status = 1;  // active
  EXPECT_TRUE(device.is_capturing(nullptr));
  fake.capture_status = 2;  // invalidated
  EXPECT_TRUE(device.is_capturing(nullptr));
  fake.capture_status = 0;
  fake.failing["stream_is_capturing"] = kCuStreamCaptureImplicit;
  EXPECT_TRUE(device.is_capturing(nullptr));
  fake.failing["stream_is_capturing"] = 700;
  error_of(ErrorCode::kDriver, [&] { (void)device.is_capturing(nullptr); });
}

TEST_F(CudaDeviceTest, BufferFreesOnceAndNeverThrows) {
  CudaDevice device = open();
  fake.failing["memory_free"] = 700;
  {
    Buffer buffer(device, 16);
    const Buffer moved(std::move(buffer));
    EXPECT_NE(moved.data(), nullptr);
    EXPECT_EQ(moved.bytes(), 16u);
  }
  EXPECT_EQ(fake.count("memory_free"), 1);
  { const Buffer empty(device, 0); }
  EXPECT_EQ(fake.count("memory_allocate"), 1);
  EXPECT_EQ(fake.count("memory_free"), 1);
}

TEST_F(CudaDeviceTest, EnqueuesZerosWithoutWaiting) {
  const CudaDevice device = open();
  fake.current = kFakeContext;
  fake.calls.clear();
  device.enqueue_zero(reinterpret_cast<void*>(0x2000), 12, nullptr);
  EXPECT_EQ(fake.calls, (std::vector<std::string>{"context_current", "memory_set_async"}));
  EXPECT_EQ(fake.words_set, 3u);
}

TEST_F(CudaDeviceTest, EnqueuesCopiesOfRows) {
  const CudaDevice device = open();
  fake.current = kFakeContext;
  fake.calls.clear();
  CopyRows copy{.to = reinterpret_cast<void*>(0x2000),
                .to_pitch = 12,
                .from = reinterpret_cast<void*>(0x3000),
                .from_pitch = 16,
                .width = 8,
                .rows = 5};
  device.enqueue_copy(copy, nullptr);
  EXPECT_EQ(fake.calls, (std::vector<std::string>{"context_current", "copy_2d_async"}));
  EXPECT_EQ(fake.rows_copied.to.device, 0x2000u);
  EXPECT_EQ(fake.rows_copied.to.pitch, 12u);
  EXPECT_EQ(fake.rows_copied.from.device, 0x3000u);
  EXPECT_EQ(fake.rows_copied.from.pitch, 16u);
  EXPECT_EQ(fake.rows_copied.width, 8u);
  EXPECT_EQ(fake.rows_copied.height, 5u);
  fake.calls.clear();
  copy.to_pitch = copy.from_pitch = copy.width;  // one run of bytes
  device.enqueue_copy(copy, nullptr);
  EXPECT_EQ(fake.calls, (std::vector<std::string>{"context_current", "copy_async"}));
  fake.calls.clear();
  copy.rows = 0;
  device.enqueue_copy(copy, nullptr);
  EXPECT_TRUE(fake.calls.empty());
}

TEST_F(CudaDeviceTest, TensorMapIsHostWorkUnderTheContext) {
  const CudaDevice device = open();
  TensorMapDesc desc;
  desc.dtype = DType::kF16;
  desc.rank = 3;
  desc.dims[0] = 128;
  desc.box[0] = 64;
  desc.strides_bytes[0] = 254;
  fake.calls.clear();
  unsigned char map[128];
  device.encode_tensor_map(desc, map);
  EXPECT_EQ(fake.calls, (std::vector<std::string>{"context_current", "context_push",
                                                  "tensor_map_encode", "context_pop"}));
  EXPECT_EQ(fake.map_type, kCuMapF16);
  EXPECT_EQ(fake.map_swizzle, 3);

  fake.failing["tensor_map_encode"] = 1;
  const std::string text =
      error_of(ErrorCode::kDriver, [&] { device.encode_tensor_map(desc, map); });
  EXPECT_NE(text.find("dims 128"), std::string::npos) << text;
  EXPECT_NE(text.find("strides 254"), std::string::npos) << text;
  EXPECT_NE(text.find("box 64"), std::string::npos) << text;
}

TEST_F(CudaDeviceTest, EventsMeasure) {
  CudaDevice device = open();
  const auto start = device.create_event();
  const auto end = device.create_event();
  start->record(nullptr);
  end->record(nullptr);
  end->synchronize();
  EXPECT_EQ(end->milliseconds_since(*start), 1.5);
}

TEST_F(CudaDeviceTest, DestroysAnEventInItsContext) {
  CudaDevice device = open();
  auto event = device.create_event();
  const int pushed = fake.count("context_push");
  event.reset();
  EXPECT_EQ(fake.count("event_destroy"), 1);
  EXPECT_EQ(fake.count("context_push"), pushed + 1);
  event = device.create_event();
  fake.failing["context_current"] = 4;  // the driver has ended: the destructor does not throw
  event.reset();
}

TEST_F(CudaDeviceTest, EventsOrderAnUrgentStream) {
  const auto device = std::make_shared<CudaDevice>(api_, 0);
  {
    const OwnedStream urgent(device, device->create_urgent_stream());
    EXPECT_EQ(fake.stream_flags, kCuStreamNonBlocking);
    EXPECT_EQ(fake.stream_priority, kCuHighestPriority);
    const auto event = device->create_untimed_event();
    EXPECT_EQ(fake.event_flags, kCuEventDisableTiming);
    event->record(nullptr);
    event->enqueue_wait(urgent.get());
    EXPECT_EQ(fake.waiting, urgent.get());
    fake.failing["stream_wait_event"] = 700;
    error_of(ErrorCode::kDriver, [&] { event->enqueue_wait(urgent.get()); });
    fake.failing["stream_destroy"] = 700;  // the destructor does not throw
  }
  EXPECT_EQ(fake.count("stream_destroy"), 1);
}

}  // namespace
}  // namespace fa4::internal
