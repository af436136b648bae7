#include "jit/embedded_sources.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "test_kernels.h"

namespace fa4::internal {
namespace {

TEST(EmbeddedSources, HoldTheKernelsSortedAndEndInNul) {
  const auto files = embedded_sources();
  ASSERT_FALSE(files.empty());
  bool traits = false;
  for (size_t i = 0; i < files.size(); ++i) {
    EXPECT_TRUE(std::string_view(files[i].name).starts_with("kernels/")) << files[i].name;
    EXPECT_EQ(std::strlen(files[i].text), files[i].bytes) << files[i].name;
    if (i > 0) {
      EXPECT_LT(std::strcmp(files[i - 1].name, files[i].name), 0);
    }
    if (std::string_view(files[i].name) != "kernels/sm90/forward/traits.h") continue;
    traits = true;
    EXPECT_NE(std::string_view(files[i].text).find("struct FwdTraits"), std::string_view::npos);
  }
  EXPECT_TRUE(traits);
}

TEST(EmbeddedSources, HashFollowsNamesAndTexts) {
  const EmbeddedFile base[] = {test_file("a.h", "one"), test_file("b.h", "two")};
  const EmbeddedFile text[] = {test_file("a.h", "one"), test_file("b.h", "twx")};
  const EmbeddedFile name[] = {test_file("a.h", "one"), test_file("c.h", "two")};
  const EmbeddedFile moved[] = {test_file("a.h", "onetwo"), test_file("b.h", "")};
  EXPECT_EQ(hash_of(base), hash_of(base));
  EXPECT_EQ(hash_of(base).size(), 32u);
  EXPECT_NE(hash_of(base), hash_of(text));
  EXPECT_NE(hash_of(base), hash_of(name));
  EXPECT_NE(hash_of(base), hash_of(moved));
}

}  // namespace
}  // namespace fa4::internal
