#include "emulator/parse/types.h"

#include <gtest/gtest.h>

namespace ptxemu {
namespace {

TEST(Types, NamesAndTypesAreEachOthersInverse) {
  for (int i = 1; i <= static_cast<int>(Type::kE3M2); ++i) {
    const Type type = static_cast<Type>(i);
    EXPECT_EQ(type_of(name_of(type)), type) << name_of(type);
    EXPECT_GT(bits_of(type), 0) << name_of(type);
  }
  EXPECT_EQ(type_of("x32"), Type::kNone);
  EXPECT_EQ(type_of(""), Type::kNone);
}

TEST(Types, WidthAndClass) {
  EXPECT_EQ(bits_of(Type::kPred), 1);
  EXPECT_EQ(bytes_of(Type::kPred), 1);
  EXPECT_EQ(bytes_of(Type::kE4M3x2), 2);
  EXPECT_EQ(bytes_of(Type::kF32x2), 8);
  EXPECT_EQ(bytes_of(Type::kB128), 16);
  EXPECT_TRUE(is_signed(Type::kS16x2));
  EXPECT_FALSE(is_signed(Type::kU64));
  EXPECT_TRUE(is_float(Type::kBF16x2));
  EXPECT_FALSE(is_float(Type::kB32));
}

TEST(Types, SpacesHaveTheNamesOfTheManual) {
  EXPECT_EQ(name_of(Space::kGeneric), "generic");
  EXPECT_EQ(name_of(Space::kShared), "shared");
  EXPECT_EQ(name_of(Space::kSharedCluster), "shared::cluster");
}

}  // namespace
}  // namespace ptxemu
