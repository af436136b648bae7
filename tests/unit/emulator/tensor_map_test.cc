// The codec of tensor maps, against maps that cuTensorMapEncodeTiled made (H200, driver 580.159).
#include "emulator/machine/tensor_map.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ptxemu/machine.h"

namespace ptxemu {
namespace {

struct Captured {
  const char* name;
  TensorMapRequest request;
  uint32_t words[16];
};

const Captured kCaptured[] = {
    {"u8, 1d",
     {0x7f0000000000, "u8", {64}, {}, {16}, {}, "none", "none", "zero"},
     {0, 0x7f00, 0, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0, 0, 0x0f000000, 0, 0}},
    {"u16, 2d, stride 2, 32B",
     {0x7f0000010000, "u16", {96, 107}, {768}, {16, 9}, {1, 2}, "none", "32B", "zero"},
     {0x10000, 0x7f00, 0x22090, 0x30, 0, 0, 0, 0, 0x5f, 0x6a, 0, 0, 0, 0x0f000008, 8, 0}},
    {"u32, 3d, stride 3, 64B",
     {0x7f0000020000,
      "u32",
      {128, 114, 5},
      {1024, 393216},
      {16, 10, 2},
      {1, 3, 1},
      "none",
      "64B",
      "zero"},
     {0x20000, 0x7f00, 0x44120, 0x40, 0x6000, 0, 0, 0, 0x7f, 0x71, 4, 0, 0, 0x0f000010, 0x109, 0}},
    {"s32, 4d, interleaved",
     {0x7f0000030000,
      "s32",
      {160, 121, 5, 3},
      {1280, 524288, 4194304},
      {16, 11, 2, 1},
      {},
      "16B",
      "none",
      "zero"},
     {0x30000, 0x7f00, 0x609b0, 0x50, 0x8000, 0x40000, 0, 0, 0x9f, 0x78, 4, 2, 0, 0x0f000000, 0x10a,
      0}},
    {"u64, 5d, a stride of 2^36",
     {0x7f0000040000,
      "u64",
      {192, 128, 5, 3, 2},
      {1536, 655360, 4194304, 68719476736},
      {4, 12, 2, 1, 1},
      {1, 2, 1, 1, 1},
      "none",
      "none",
      "zero"},
     {0x40000, 0x7f00, 0x240, 0x60, 0xa000, 0x40000, 0, 0x1000, 0xbf, 0x7f, 4, 2, 1, 0x03000008,
      0x10b, 0}},
    {"s64, 1d, 32B",
     {0x7f0000050000, "s64", {224}, {}, {4}, {}, "none", "32B", "zero"},
     {0x50000, 0x7f00, 0x22280, 0, 0, 0, 0, 0, 0xdf, 0, 0, 0, 0, 0x03000000, 0, 0}},
    {"f16, 2d, 64B",
     {0x7f0000060000, "f16", {256, 142}, {2048}, {16, 14}, {}, "none", "64B", "zero"},
     {0x60000, 0x7f00, 0x44310, 0x80, 0, 0, 0, 0, 0xff, 0x8d, 0, 0, 0, 0x0f000000, 0xd, 0}},
    {"f32, 3d, interleaved, nan",
     {0x7f0000070000,
      "f32",
      {288, 149, 5},
      {2304, 1048576},
      {16, 15, 2},
      {1, 2, 1},
      "16B",
      "none",
      "nan"},
     {0x70000, 0x7f00, 0x68ba0, 0x90, 0x10000, 0, 0, 0, 0x11f, 0x94, 4, 0, 0, 0x0f000008, 0x10e,
      0}},
    {"f64, 4d",
     {0x7f0000080000,
      "f64",
      {320, 156, 5, 3},
      {2560, 1179648, 4194304},
      {4, 16, 2, 1},
      {1, 3, 1, 1},
      "none",
      "none",
      "zero"},
     {0x80000, 0x7f00, 0x4b0, 0xa0, 0x12000, 0x40000, 0, 0, 0x13f, 0x9b, 4, 2, 0, 0x03000010, 0x10f,
      0}},
    {"bf16, 5d, interleaved, nan, strides of 2^36 and 2^37",
     {0x7f0000090000,
      "bf16",
      {352, 163, 5, 3, 2},
      {2816, 1310720, 137438953472, 68719476736},
      {16, 17, 2, 1, 1},
      {},
      "16B",
      "none",
      "nan"},
     {0x90000, 0x7f00, 0x28d40, 0xb0, 0x14000, 0, 0, 0x1200, 0x15f, 0xa2, 4, 2, 1, 0x0f000000,
      0x110, 0}},
    {"f32_ftz, 128B",
     {0x7f0000000000, "f32_ftz", {100, 50}, {512}, {32, 8}, {}, "none", "128B", "zero"},
     {0, 0x7f00, 0x6410, 0x20, 0, 0, 0, 0, 0x63, 0x31, 0, 0, 0, 0x1f000000, 7, 0}},
    {"tf32",
     {0x7f0000000000, "tf32", {100, 50}, {512}, {32, 8}, {}, "none", "128B", "zero"},
     {0, 0x7f00, 0x16390, 0x20, 0, 0, 0, 0, 0x63, 0x31, 0, 0, 0, 0x1f000000, 7, 0}},
    {"tf32_ftz",
     {0x7f0000000000, "tf32_ftz", {100, 50}, {512}, {32, 8}, {}, "none", "128B", "zero"},
     {0, 0x7f00, 0x16410, 0x20, 0, 0, 0, 0, 0x63, 0x31, 0, 0, 0, 0x1f000000, 7, 0}},
};

// L2 promotion, which a request does not name and no copy depends on.
constexpr uint32_t kPromotion = 3u << 17;

TEST(TensorMap, EncodesAsTheDriverDoes) {
  for (const Captured& c : kCaptured) {
    const auto bytes = Machine::encode_tensor_map(c.request);
    uint32_t words[32];
    std::memcpy(words, bytes.data(), sizeof words);
    for (int i = 0; i < 16; ++i) {
      const uint32_t wanted = i == 2 ? c.words[i] & ~kPromotion : c.words[i];
      EXPECT_EQ(words[i], wanted) << c.name << ", word " << i;
    }
  }
}

TEST(TensorMap, DecodesWhatTheDriverMadeAndEncodesItAgain) {
  for (const Captured& c : kCaptured) {
    uint32_t words[32] = {};
    std::memcpy(words, c.words, sizeof c.words);
    std::memset(words + 16, 0xA5, 64);  // the hardware does not read these
    TensorMap map;
    std::string why;
    ASSERT_TRUE(TensorMap::decode(reinterpret_cast<const std::byte*>(words), &map, &why)) << why;
    EXPECT_EQ(map.address, c.request.address) << c.name;
    EXPECT_EQ(name_of(map.type), c.request.dtype) << c.name;
    ASSERT_EQ(map.rank, c.request.dims.size()) << c.name;
    for (size_t d = 0; d < map.rank; ++d) {
      EXPECT_EQ(map.dims[d], c.request.dims[d]) << c.name;
      EXPECT_EQ(map.box[d], c.request.box[d]) << c.name;
      EXPECT_EQ(map.strides[d], d == 0 ? 0 : c.request.strides_bytes[d - 1]) << c.name;
    }
    EXPECT_EQ(map.check(), "") << c.name;
    const auto again = map.encode();
    EXPECT_EQ(std::memcmp(again.data(), c.words, sizeof c.words), 0) << c.name;
  }
}

TEST(TensorMap, IgnoresBitsThatOtherEncodersSet) {
  uint32_t words[32] = {};
  std::memcpy(words, kCaptured[6].words, sizeof kCaptured[6].words);
  words[2] |= 2 | 1u << 21;
  TensorMap map;
  std::string why;
  EXPECT_TRUE(TensorMap::decode(reinterpret_cast<const std::byte*>(words), &map, &why)) << why;
  EXPECT_EQ(map.dims[0], 256u);
}

TEST(TensorMap, BitsOfUnknownMeaningAreNamed) {
  uint32_t words[32] = {};
  std::memcpy(words, kCaptured[6].words, sizeof kCaptured[6].words);
  words[2] |= 1u << 20;
  TensorMap map;
  std::string why;
  EXPECT_FALSE(TensorMap::decode(reinterpret_cast<const std::byte*>(words), &map, &why));
  EXPECT_NE(why.find("0x100000"), std::string::npos) << why;
}

void expect_refused(const TensorMapRequest& request, const std::string& argument,
                    const std::string& value) {
  try {
    Machine::encode_tensor_map(request);
    ADD_FAILURE() << argument << " accepted";
  } catch (const InputError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(argument), std::string::npos) << what;
    EXPECT_NE(what.find(value), std::string::npos) << what;
    EXPECT_NE(what.find("accepted"), std::string::npos) << what;
  }
}

TEST(TensorMap, WhatTheDriverRefusesIsRefusedWithTheReason) {
  const TensorMapRequest good{0x1000, "bf16", {128, 64}, {256}, {64, 64},
                              {},     "none", "128B",    "zero"};
  EXPECT_NO_THROW(Machine::encode_tensor_map(good));
  auto with = [&](auto change) {
    TensorMapRequest request = good;
    change(request);
    return request;
  };
  using R = TensorMapRequest;
  expect_refused(with([](R& r) { r.address = 0x1008; }), "address", "0x1008");
  expect_refused(with([](R& r) { r.dtype = "f8"; }), "dtype", "f8");
  expect_refused(with([](R& r) { r.dims = {}; }), "dims", "0");
  expect_refused(with([](R& r) { r.dims[1] = 0; }), "dims[1]", "0");
  expect_refused(with([](R& r) { r.strides_bytes = {}; }), "strides_bytes", "0");
  expect_refused(with([](R& r) { r.strides_bytes[0] = 250; }), "strides_bytes[0]", "250");
  expect_refused(with([](R& r) { r.box[1] = 257; }), "box[1]", "257");
  expect_refused(with([](R& r) { r.box[0] = 128; }), "box[0]", "256");
  expect_refused(with([](R& r) { r.box[0] = 4; }), "box[0]", "4");
  expect_refused(with([](R& r) { r.element_strides = {1, 9}; }), "element_strides[1]", "9");
  expect_refused(with([](R& r) { r.swizzle = "96B"; }), "swizzle", "96B");
  expect_refused(with([](R& r) { r.interleave = "16B"; }), "interleave", "2");
  expect_refused(with([](R& r) {
                   r.oob = "nan";
                   r.dtype = "u16";
                 }),
                 "oob", "nan");
}

}  // namespace
}  // namespace ptxemu
