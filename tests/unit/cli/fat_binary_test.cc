// What a fat binary's headers may say, and what is refused before it is believed.
#include "ptxemu/exec/fatbin.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptxemu::exec {
namespace {

constexpr uint32_t kMagic = 0xba55ed50;
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr char kText[] = ".version 9.0\n.target sm_100a\n";

template <class T>
void put(std::vector<unsigned char>* image, size_t at, T value) {
  std::memcpy(image->data() + at, &value, sizeof value);
}

// One entry of PTX, as it is.
std::vector<unsigned char> plain() {
  constexpr size_t kBefore = 16 + 64;
  std::vector<unsigned char> image(kBefore + sizeof kText);
  put(&image, 0, kMagic);
  put<uint16_t>(&image, 6, 16);
  put<uint64_t>(&image, 8, image.size() - 16);
  put<uint16_t>(&image, 16, 1);
  put<uint32_t>(&image, 20, 64);
  put<uint64_t>(&image, 24, sizeof kText);
  put<uint32_t>(&image, 44, 100);
  std::memcpy(image.data() + kBefore, kText, sizeof kText);
  return image;
}

TEST(FatBinary, GivesItsText) {
  const auto entries = read_image(plain().data());
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].text, kText);
  EXPECT_EQ(entries[0].architecture, 100u);
}

TEST(FatBinary, AnEntryEndsInsideIt) {
  auto image = plain();
  put<uint32_t>(&image, 20, 0xffffff00);  // where the text begins
  EXPECT_THROW(read_image(image.data()), std::runtime_error);
  image = plain();
  put<uint64_t>(&image, 24, sizeof kText + 1);
  EXPECT_THROW(read_image(image.data()), std::runtime_error);
}

TEST(FatBinary, CompressedTextIsInsideItsEntryAndNotWithoutEnd) {
  for (const uint64_t kind : {kLz4, kZstd}) {
    auto image = plain();
    put<uint64_t>(&image, 16 + 40, kind);
    put<uint32_t>(&image, 16 + 16, sizeof kText + 1);
    put<uint64_t>(&image, 16 + 56, 100);
    EXPECT_THROW(read_image(image.data()), std::runtime_error);
    put<uint32_t>(&image, 16 + 16, sizeof kText);
    put<uint64_t>(&image, 16 + 56, uint64_t{1} << 60);
    EXPECT_THROW(read_image(image.data()), std::runtime_error);
  }
}

TEST(FatBinary, TextNamesItsTarget) {
  EXPECT_EQ(read_image(".version 9.0\n.target sm_90a\n")[0].architecture, 90u);
  for (const char* text : {".version 9.0\n", ".target sm_", ".target sm_x", ".target sm_1000a"}) {
    EXPECT_THROW(read_image(text), std::runtime_error) << text;
  }
}

}  // namespace
}  // namespace ptxemu::exec
