// What the build put into the library is what plan asks for.
#include "jit/prebuilt_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "jit/kernel_cache.h"
#include "plan/kernel_spec.h"

namespace fa4::internal {
namespace {

class PrebuiltImages : public testing::Test {
 protected:
  void SetUp() override {
    if (prebuilt_images().empty()) GTEST_SKIP() << "built without prebuilt kernels";
  }
};

TEST_F(PrebuiltImages, AreEveryKernelOfThePlan) {
  std::set<std::string> architectures;
  for (const PrebuiltImage& row : prebuilt_images()) architectures.insert(row.architecture);
  size_t wanted = 0;
  for (const std::string& architecture : architectures) {
    for (const PrebuiltKernel& kernel : prebuilt_kernels(architecture)) {
      const KernelSource& source = kernel.source;
      EXPECT_TRUE(find_prebuilt(prebuilt_images(), source, architecture)) << source.display_name;
      ++wanted;
    }
  }
  EXPECT_EQ(wanted, prebuilt_images().size());
}

TEST_F(PrebuiltImages, AreCubinsThatSpillNothing) {
  for (const PrebuiltImage& row : prebuilt_images()) {
    const auto image =
        find_prebuilt(prebuilt_images(), {row.main_file, row.name_expression, row.display_name},
                      row.architecture);
    ASSERT_TRUE(image);
    ASSERT_GT(image->bytes.size(), 4u);
    EXPECT_EQ(std::string(image->bytes.begin() + 1, image->bytes.begin() + 4), "ELF");
    EXPECT_NE(std::string(image->bytes.begin(), image->bytes.end()).find(image->entry),
              std::string::npos);
    EXPECT_GT(image->resources.registers, 0);
    EXPECT_EQ(image->resources.spill_bytes, 0) << row.display_name;
  }
}

TEST_F(PrebuiltImages, ComeFromTheCacheOfTheProcess) {
  const PrebuiltImage& row = prebuilt_images().front();
  const auto image = KernelCache::get().find_or_compile(
      {row.main_file, row.name_expression, row.display_name}, row.architecture);
  EXPECT_EQ(image->bytes.size(), row.num_bytes);
  EXPECT_EQ(KernelCache::get().counts().embedded, 1);
  EXPECT_EQ(KernelCache::get().counts().compiled, 0);
}

// Every byte of a frame counts, and so does every byte of the image that it is unpacked behind.
TEST_F(PrebuiltImages, AreErrorsWhenTheirBytesOrTheirBaseAreOthers) {
  const auto images = prebuilt_images();
  const auto found =
      std::find_if(images.begin(), images.end(), [](const auto& r) { return r.base; });
  ASSERT_NE(found, images.end());
  PrebuiltImage row = *found;
  const KernelSource source{row.main_file, row.name_expression, row.display_name};
  const auto message = [&]() -> std::string {
    try {
      find_prebuilt({&row, 1}, source, row.architecture);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(), "");
  std::vector<unsigned char> frame(row.frame, row.frame + row.frame_bytes);
  frame[frame.size() / 2] ^= 1;
  row.frame = frame.data();
  EXPECT_TRUE(message().starts_with("the prebuilt image of " + source.display_name)) << message();
  row = *found;
  row.base = nullptr;
  EXPECT_TRUE(message().starts_with("the prebuilt image of " + source.display_name)) << message();
  PrebuiltImage base = *found->base;
  base.frame_bytes -= 1;
  row.base = &base;
  EXPECT_TRUE(message().starts_with(std::string("the prebuilt image of ") + base.display_name))
      << message();
}

TEST(PrebuiltImage, ThatIsDamagedIsAnErrorThatNamesIt) {
  constexpr unsigned char kFrame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 3, 0x19, 0, 0, 9, 8, 7};
  PrebuiltImage row{"a.cuh", "a", "kernel_a", "sm_90a", "", "a", kFrame, sizeof kFrame, 3, {}};
  const auto find = [&] { return find_prebuilt({&row, 1}, {"a.cuh", "a", "kernel_a"}, "sm_90a"); };
  EXPECT_EQ(find()->bytes, std::vector<unsigned char>({9, 8, 7}));
  const auto message = [&]() -> std::string {
    try {
      find();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  row.frame_bytes = sizeof kFrame - 1;
  EXPECT_TRUE(message().starts_with("the prebuilt image of kernel_a for sm_90a is damaged: "));
  row.frame_bytes = sizeof kFrame;
  row.num_bytes = 4;
  EXPECT_EQ(message(), "the prebuilt image of kernel_a for sm_90a is damaged: too short");
}

}  // namespace
}  // namespace fa4::internal
