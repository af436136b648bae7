// An emulated GPU behind the same door as a real one.
#include "device/emulated/emulated_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "core/error.h"
#include "device/emulated/launch_files.h"

namespace fa4::internal {
namespace {

// y[i] += add, one thread an element; `trap` instead when add is 0.
constexpr const char* kPtx = R"(
.version 8.7
.target sm_90
.address_size 64
.visible .entry add(.param .align 8 .b8 p[16])
{
  .reg .pred %z;
  .reg .b32 %i, %v, %a;
  .reg .b64 %y, %o;
  ld.param.u64 %y, [p];
  ld.param.u32 %a, [p+8];
  setp.eq.u32 %z, %a, 0;
  @%z trap;
  mov.u32 %i, %tid.x;
  mul.wide.u32 %o, %i, 4;
  add.s64 %y, %y, %o;
  ld.global.u32 %v, [%y];
  add.u32 %v, %v, %a;
  st.global.u32 [%y], %v;
  ret;
}
)";

struct Params {
  void* y;
  uint32_t add, unused;
};

KernelImage image_of(const char* text, KernelImage::Kind kind = KernelImage::Kind::kPtx) {
  KernelImage image;
  image.kind = kind;
  image.bytes.assign(text, text + std::strlen(text) + 1);  // NVRTC's PTX ends in NUL
  image.entry = "add";
  image.display_name = "add";
  image.architecture = "sm_90a";
  return image;
}

class Emulated : public ::testing::Test {
 protected:
  std::string error_of(const std::function<void()>& call, ErrorCode code) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "no error";
  }

  std::shared_ptr<Device> device_ = Device::open("emulated:h200");
};

TEST_F(Emulated, IsOneOfTwo) {
  EXPECT_EQ(device_->spec().kind, DeviceKind::kEmulated);
  EXPECT_EQ(device_->spec().architecture, "sm_90a");
  EXPECT_EQ(device_->spec().num_sms, 132);
  EXPECT_EQ(Device::open("emulated:h200"), device_);
  EXPECT_EQ(Device::open("emulated:b200")->spec().architecture, "sm_100a");
  EXPECT_EQ(device_->image_kind(), KernelImage::Kind::kPtx);
}

TEST_F(Emulated, RunsAKernelOverItsMemory) {
  constexpr size_t kCount = 96;
  uint32_t values[kCount];
  for (uint32_t i = 0; i < kCount; ++i) values[i] = 7 * i;
  const Buffer buffer(*device_, sizeof values);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
  device_->copy_to_device(buffer.data(), values, sizeof values);
  const auto kernel = device_->load(image_of(kPtx), 0);
  LaunchConfig config;
  config.block[0] = kCount;
  const Params params{buffer.data(), 5, 0};
  void* stream = device_->create_stream();
  EXPECT_FALSE(device_->is_capturing(stream));
  const auto begin = device_->create_event(), end = device_->create_event();
  begin->record(stream);
  kernel->launch(config, &params, sizeof params, stream);
  end->record(stream);
  EXPECT_GT(end->milliseconds_since(*begin), 0);
  const OwnedStream urgent(device_, device_->create_urgent_stream());
  end->enqueue_wait(urgent.get());
  EXPECT_NE(urgent.get(), stream);
  device_->synchronize(stream);
  device_->destroy_stream(stream);
  uint32_t results[kCount];
  device_->copy_to_host(results, buffer.data(), sizeof results);
  for (uint32_t i = 0; i < kCount; ++i) EXPECT_EQ(results[i], 7 * i + 5) << i;
  device_->enqueue_zero(buffer.data(), 8, nullptr);
  device_->fill(static_cast<char*>(buffer.data()) + 8, 0xab, 4);
  device_->copy_to_host(results, buffer.data(), 16);
  EXPECT_EQ(results[1], 0u);
  EXPECT_EQ(results[2], 0xababababu);
  EXPECT_EQ(results[3], 26u);
}

TEST_F(Emulated, ABrokenLaunchThrows) {
  const Buffer buffer(*device_, 256);
  const auto kernel = device_->load(image_of(kPtx), 0);
  const auto launch = [&](uint32_t threads, Params params, size_t bytes) {
    LaunchConfig config;
    config.block[0] = threads;
    return [&kernel, config, params, bytes] { kernel->launch(config, &params, bytes, nullptr); };
  };
  std::string text = error_of(launch(1, {buffer.data(), 0, 0}, 16), ErrorCode::kDriver);
  EXPECT_NE(text.find("emulated:h200: launch of add: trap"), std::string::npos) << text;
  text = error_of(launch(96, {buffer.data(), 1, 0}, 16), ErrorCode::kDriver);
  EXPECT_NE(text.find("PTX line 17"), std::string::npos) << text;
  text = error_of(launch(1, {buffer.data(), 1, 0}, 12), ErrorCode::kDriver);
  EXPECT_NE(text.find("12 bytes"), std::string::npos) << text;
  text = error_of(launch(0, {buffer.data(), 1, 0}, 16), ErrorCode::kDriver);
  EXPECT_NE(text.find("block.x 0"), std::string::npos) << text;
}

TEST_F(Emulated, LoadsPtxAndNothingElse) {
  std::string text = error_of([&] { device_->load(image_of(kPtx, KernelImage::Kind::kCubin), 0); },
                              ErrorCode::kInvalidArgument);
  EXPECT_NE(text.find("accepted: PTX"), std::string::npos) << text;
  text = error_of([&] { device_->load(image_of("no PTX"), 0); }, ErrorCode::kDriver);
  EXPECT_NE(text.find("loading add"), std::string::npos) << text;
}

TEST_F(Emulated, MemoryThatIsNotThere) {
  char host[16] = {};
  const Buffer buffer(*device_, 16);
  const auto at = static_cast<char*>(buffer.data());
  error_of([&] { device_->copy_to_host(host, at + 8, 16); }, ErrorCode::kDriver);
  const std::string text =
      error_of([&] { device_->allocate(size_t{1} << 50); }, ErrorCode::kOutOfMemory);
  EXPECT_NE(text.find("emulated:h200: allocation"), std::string::npos) << text;
}

TEST_F(Emulated, TensorMaps) {
  TensorMapDesc desc;
  desc.base = reinterpret_cast<void*>(0x123400);
  desc.rank = 2;
  desc.dims[0] = 64, desc.dims[1] = 10;
  desc.strides_bytes[0] = 128;
  desc.box[0] = 64, desc.box[1] = 8;
  alignas(64) unsigned char map[128];
  device_->encode_tensor_map(desc, map);
  uint64_t base = 0;
  std::memcpy(&base, map, sizeof base);
  EXPECT_EQ(base, 0x123400u);
  desc.box[0] = 0;
  error_of([&] { device_->encode_tensor_map(desc, map); }, ErrorCode::kDriver);
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class SavedLaunch : public Emulated {
 protected:
  ~SavedLaunch() override { std::filesystem::remove_all(folder_); }

  void save(const Params& params, const Allocations& allocations) {
    ptxemu::LaunchRequest request;
    request.kernel = "add";
    request.grid = {3, 2, 1};
    request.shared_bytes = 64;
    save_launch(folder_, {kPtx, "add<Traits{...}>", request, &params, sizeof params}, allocations);
  }

  const std::string folder_ = ::testing::TempDir() + "saved_launches";
};

TEST_F(SavedLaunch, HasWhatTheParametersPointInto) {
  const unsigned char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto begin = reinterpret_cast<uint64_t>(bytes);
  // The second lies elsewhere: nothing of it is read.
  save({const_cast<unsigned char*>(bytes) + 4, 5, 0}, {{begin, sizeof bytes}, {1 << 20, 1 << 30}});
  std::filesystem::path saved;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) saved = entry.path();
  EXPECT_NE(saved.filename().string().find("-add"), std::string::npos) << saved;
  EXPECT_EQ(saved.filename().string().find('<'), std::string::npos) << saved;
  EXPECT_EQ(text_of(saved / "kernel.ptx"), kPtx);
  const std::string npy = text_of(saved / "b0.npy");
  EXPECT_EQ(npy.size() % 64, sizeof bytes);
  EXPECT_NE(npy.find("'|u1', 'fortran_order': False, 'shape': (8,)"), std::string::npos) << npy;
  EXPECT_EQ(std::memcmp(npy.data() + npy.size() - sizeof bytes, bytes, sizeof bytes), 0);
  const std::string launch = text_of(saved / "launch.json");
  for (const char* words : {R"("kernel": "add")", R"("grid": [3, 2, 1])", R"("shared_bytes": 64)",
                            R"({"offset": 0, "ptr": "b0", "add": 4})"}) {
    EXPECT_NE(launch.find(words), std::string::npos) << words << " in " << launch;
  }
  EXPECT_EQ(launch.find(R"("b1")"), std::string::npos)
      << launch;  // bytes of addresses have any digits
}

TEST_F(SavedLaunch, HasAFolderOfItsOwn) {
  for (int i = 0; i < 3; ++i) save({nullptr, 1, 0}, {});
  const auto folders = std::filesystem::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(folders), end(folders)), 3);
}

TEST_F(SavedLaunch, SaysWhatCannotBeWritten) {
  std::ofstream(folder_) << "a file where the folder would be";
  const std::string text = error_of([&] { save({nullptr, 1, 0}, {}); }, ErrorCode::kIo);
  EXPECT_NE(text.find("FA4_EMULATOR_SAVE \"" + folder_ + "\""), std::string::npos) << text;
  EXPECT_NE(text.find("accepted: a folder"), std::string::npos) << text;
}

}  // namespace
}  // namespace fa4::internal
