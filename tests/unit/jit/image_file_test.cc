#include "jit/image_file.h"

#include <gtest/gtest.h>

#include "test_kernels.h"

namespace fa4::internal {
namespace {

KernelImage example() { return stub_image(scale_by(3), "sm_90a"); }

TEST(ImageFile, KeepsEveryField) {
  const KernelImage image = example();
  const auto read = parse_image(serialise_image(image, "key"), "key");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, image.kind);
  EXPECT_EQ(read->bytes, image.bytes);
  EXPECT_EQ(read->entry, image.entry);
  EXPECT_EQ(read->display_name, image.display_name);
  EXPECT_EQ(read->architecture, image.architecture);
  EXPECT_EQ(read->compiler, image.compiler);
  EXPECT_EQ(read->log, image.log);
  EXPECT_EQ(read->resources.registers, 168);
  EXPECT_EQ(read->resources.spill_bytes, 4);
  EXPECT_EQ(read->resources.stack_bytes, 8);
  EXPECT_EQ(read->resources.static_smem_bytes, 1024);
  EXPECT_EQ(read->compile_seconds, 0);
}

TEST(ImageFile, RefusesAnotherKey) {
  const std::string bytes = serialise_image(example(), "key");
  EXPECT_FALSE(parse_image(bytes, "other"));
  EXPECT_TRUE(parse_image(bytes, ""));
}

TEST(ImageFile, RefusesEveryTruncation) {
  const std::string bytes = serialise_image(example(), "key");
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(parse_image(bytes.substr(0, length), "key")) << length;
  }
  EXPECT_FALSE(parse_image(bytes + '\0', "key"));
}

TEST(ImageFile, RefusesEveryFlippedBit) {
  const std::string bytes = serialise_image(example(), "key");
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_FALSE(parse_image(damaged, "key")) << "byte " << at << ", bit " << bit;
    }
  }
}

}  // namespace
}  // namespace fa4::internal
