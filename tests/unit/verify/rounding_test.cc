#include "verify/rounding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "verify/random.h"

namespace fa4::internal {
namespace {

float value_of(DType dtype, uint16_t bits) {
  return dtype == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
}

TEST(Rounding, EveryValueOfTheTypeStays) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Rounding round(dtype);
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const double value = value_of(dtype, static_cast<uint16_t>(bits));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(round(value))) << bits;
      } else {
        EXPECT_EQ(round(value), value) << name_of(dtype) << " " << bits;
      }
    }
  }
}

TEST(Rounding, NeighboursMeetInTheMiddle) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Rounding round(dtype);
    const uint16_t infinity = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
    for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = value_of(dtype, bits), high = value_of(dtype, bits + 1);
      const double middle = low + (high - low) / 2;  // exact in double
      EXPECT_EQ(round(middle), bits % 2 == 0 ? low : high) << bits;
      EXPECT_EQ(round(std::nextafter(middle, low)), low) << bits;
      EXPECT_EQ(round(std::nextafter(middle, high)), high) << bits;
      EXPECT_EQ(round(-middle), -round(middle)) << bits;
    }
  }
}

TEST(Rounding, BeyondTheLargest) {
  EXPECT_EQ(Rounding(DType::kF16)(65519.999), 65504.0);
  EXPECT_TRUE(std::isinf(Rounding(DType::kF16)(65520.0)));
  EXPECT_TRUE(std::isinf(Rounding(DType::kBF16)(3.4e38)));
  EXPECT_LT(Rounding(DType::kF16)(-1e300), -1e300);
}

TEST(Rounding, F32IsTheHardwares) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const double value = std::ldexp(static_cast<double>(random.between(-(1LL << 53), 1LL << 53)),
                                    static_cast<int>(random.between(-200, 60)));
    EXPECT_EQ(Rounding(DType::kF32)(value), static_cast<double>(static_cast<float>(value)));
  }
}

TEST(Rounding, UlpIsTheDistanceOfNeighbours) {
  EXPECT_EQ(ulp_at(DType::kBF16, 1.0), std::ldexp(1.0, -7));
  EXPECT_EQ(ulp_at(DType::kF16, 1.5), std::ldexp(1.0, -10));
  EXPECT_EQ(ulp_at(DType::kF32, -2.0), std::ldexp(1.0, -22));
  EXPECT_EQ(ulp_at(DType::kF16, 0.0), std::ldexp(1.0, -24));
}

}  // namespace
}  // namespace fa4::internal
