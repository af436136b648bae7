#include "core/code_folder.h"

#include <gtest/gtest.h>

namespace fa4::internal {
namespace {

TEST(CodeFolder, IsThatOfTheProgramThatHoldsTheCode) {
  EXPECT_EQ(code_folder(), std::filesystem::canonical("/proc/self/exe").parent_path());
}

TEST(CodeFolder, LiesInWhatIsAboveIt) {
  EXPECT_TRUE(lies_in("/a/b/c", "/a/b"));
  EXPECT_TRUE(lies_in("/a/b", "/a/b"));
  EXPECT_FALSE(lies_in("/a/bc", "/a/b"));
  EXPECT_FALSE(lies_in("/a", "/a/b"));
  EXPECT_FALSE(lies_in("", "/a/b"));
}

}  // namespace
}  // namespace fa4::internal
