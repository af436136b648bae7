#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "emulator/error.h"
#include "emulator/machine/memory.h"

namespace ptxemu {
namespace {

TEST(GlobalMemory, AllocationsAreAlignedPoisonedAndApart) {
  GlobalMemory memory(uint64_t{1} << 24);
  const uint64_t a = memory.allocate(100, "a"), b = memory.allocate(4096, "b");
  EXPECT_EQ(a % 256, 0u);
  EXPECT_EQ(b % 256, 0u);
  EXPECT_GE(b - a, 100u + 256u);
  float value;
  std::memcpy(&value, memory.find(a + 96, 4), 4);
  EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(memory.find(a + 97, 4), nullptr);
  EXPECT_EQ(memory.find(a + 100, 1), nullptr);
  EXPECT_EQ(memory.find(a - 1, 1), nullptr);
  EXPECT_NE(memory.find(b, 4096), nullptr);
  EXPECT_EQ(memory.allocation_of(b + 5), (std::pair<uint64_t, uint64_t>{b, 4096}));
  EXPECT_EQ(memory.allocation_of(a + 100), (std::pair<uint64_t, uint64_t>{0, 0}));
}

TEST(GlobalMemory, DeviceAddressesAreHostAddressesWhereTheHostLetsThem) {
  GlobalMemory memory(uint64_t{1} << 24);
  const uint64_t a = memory.allocate(64, "a");
  ASSERT_TRUE(memory.is_identity());
  EXPECT_EQ(reinterpret_cast<uint64_t>(memory.find(a, 64)), a);
}

TEST(GlobalMemory, TwoMachinesDoNotMeet) {
  GlobalMemory one(uint64_t{1} << 24), two(uint64_t{1} << 24);
  const uint64_t a = one.allocate(64, "a"), b = two.allocate(64, "b");
  EXPECT_NE(one.find(a, 64), two.find(b, 64));
  EXPECT_EQ(two.find(a, 64) != nullptr, a == b);
}

TEST(GlobalMemory, FreedMemoryIsGoneAndComesBackLast) {
  GlobalMemory memory(uint64_t{1} << 20);
  const uint64_t a = memory.allocate(300000, "a");
  ASSERT_NE(memory.find(a, 1), nullptr);
  memory.free(a);
  EXPECT_EQ(memory.find(a, 1), nullptr);
  const uint64_t b = memory.allocate(300000, "b");
  EXPECT_NE(b, a);
  const uint64_t c = memory.allocate(300000, "c"), d = memory.allocate(300000, "d");
  EXPECT_EQ(d, a);
  EXPECT_THROW(memory.allocate(300000, "e"), Error);
  memory.free(b);
  memory.free(c);
  EXPECT_EQ(memory.allocate(600000, "f"), b);  // neighbours are joined
}

TEST(GlobalMemory, MistakesAreNamed) {
  GlobalMemory memory(uint64_t{1} << 20);
  const uint64_t a = memory.allocate(4096, "queries");
  EXPECT_THROW(memory.free(a + 4), Error);
  EXPECT_THROW(memory.allocate(0, ""), Error);
  EXPECT_EQ(memory.describe(a + 0x120), "queries (4096 bytes) + 0x120");
  EXPECT_EQ(memory.describe(a + 4100), "4 bytes after the end of queries (4096 bytes)");
  EXPECT_EQ(memory.describe(a - 16), "16 bytes before queries (4096 bytes)");
}

}  // namespace
}  // namespace ptxemu
