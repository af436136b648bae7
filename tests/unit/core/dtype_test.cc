#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fa4::internal {
namespace {

bool is_nan16(uint32_t bits) { return (bits & 0x7fffu) > 0x7c00u; }

// The value of a binary16, from its definition, in double.
double definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) magnitude = std::numeric_limits<double>::infinity();
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

TEST(F16, EveryBitPatternHasItsValueAndComesBack) {
  for (uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_float(half);
    if (is_nan16(bits)) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << bits;
      ASSERT_TRUE(is_nan16(float_to_f16(value))) << std::hex << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), definition(half)) << std::hex << bits;
    ASSERT_EQ(float_to_f16(value), half) << std::hex << bits;
  }
}

// Between two neighbours: below the midpoint goes down, above it up, the midpoint to the even one.
// With the previous test this fixes every float, as the conversion is monotone.
TEST(F16, MidpointsOfAllNeighboursRoundToEven) {
  for (uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    const double low = definition(static_cast<uint16_t>(bits));
    const double high = bits == 0x7bffu ? 65536.0 : definition(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: 12 significant bits
    const float infinity = std::numeric_limits<float>::infinity();
    const uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    for (uint32_t sign : {0u, 0x8000u}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(float_to_f16(s * middle), sign | even) << std::hex << bits;
      ASSERT_EQ(float_to_f16(s * std::nextafter(middle, 0.0f)), sign | bits) << std::hex << bits;
      ASSERT_EQ(float_to_f16(s * std::nextafter(middle, infinity)), sign | (bits + 1))
          << std::hex << bits;
    }
  }
}

// The value of an e4m3, from its definition, in double; NaN apart.
double definition8(uint32_t bits) {
  const int exponent = bits >> 3 & 0xf, mantissa = bits & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

TEST(E4M3, EveryByteHasItsValueAndComesBack) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    const float value = e4m3_to_float(byte);
    ASSERT_EQ(float_to_e4m3(value), byte) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x80u) != 0) << bits;
    if ((bits & 0x7fu) == 0x7fu) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), definition8(bits)) << bits;
    }
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
}

TEST(E4M3, MidpointsOfAllNeighboursRoundToEvenAndTheLargestEndsAll) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint32_t bits = 0; bits < 0x7eu; ++bits) {
    const auto middle = static_cast<float>((definition8(bits) + definition8(bits + 1)) / 2);
    const uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    for (uint32_t sign : {0u, 0x80u}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(float_to_e4m3(s * middle), sign | even) << bits;
      ASSERT_EQ(float_to_e4m3(s * std::nextafter(middle, 0.0f)), sign | bits) << bits;
      ASSERT_EQ(float_to_e4m3(s * std::nextafter(middle, infinity)), sign | (bits + 1)) << bits;
    }
  }
  EXPECT_EQ(float_to_e4m3(464.0f), 0x7e);
  EXPECT_EQ(float_to_e4m3(1e30f), 0x7e);
  EXPECT_EQ(float_to_e4m3(-infinity), 0xfe);
}

TEST(F16, OverflowsToInfinityAndKeepsTheSignOfZero) {
  EXPECT_EQ(float_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::max()), 0xfc00);
  EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(BF16, RoundsToEvenAndKeepsNaN) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // midpoint to even
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose payload lies in the bits that are cut off.
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(DType, NamesParseAndElementsLoadAndStore) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
    alignas(4) unsigned char bytes[12] = {};
    store_from_float(dtype, bytes, 2, -1.5f);
    EXPECT_EQ(load_as_float(dtype, bytes, 2), -1.5f);
    EXPECT_EQ(load_as_float(dtype, bytes, 1), 0.0f);
  }
  EXPECT_FALSE(parse_dtype("f64").has_value());
  EXPECT_FALSE(parse_dtype("").has_value());
}

}  // namespace
}  // namespace fa4::internal
