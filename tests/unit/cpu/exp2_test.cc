// The polynomial exponentials, measured against 2^x in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/exponential.h"
#include "cpu/isa/amx_softmax.h"
#include "cpu/isa/softmax_row.h"
#include "cpu/isa/vec_plain.h"

namespace fa4::internal {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

double error_of(float value, float x) {
  return std::fabs(value / std::exp2(static_cast<double>(x)) - 1.0);
}

// Visits floats from -126 to 9: a dense grid, shifted so that it hits no round numbers.
template <class Visit>
void visit_arguments(const Visit& visit) {
  for (double x = -126.0; x < 9.0; x += 0.00010007) visit(static_cast<float>(x));
}

template <int kDegree>
void check_degree() {
  double scalar = 0, vector = 0;
  visit_arguments([&](float x) {
    scalar = std::max(scalar, error_of(exp2_polynomial(kDegree, x), x));
    vector =
        std::max(vector, error_of(exp2_vector<PlainVec, kDegree>(PlainVec::set1(x)).lane[0], x));
  });
  EXPECT_LE(scalar, kExp2MaxRelativeError<kDegree>) << "degree " << kDegree;
  EXPECT_LE(vector, kExp2MaxRelativeError<kDegree>) << "degree " << kDegree;
  // The documented figure is the measured one, not a loose bound.
  EXPECT_GE(std::max(scalar, vector), 0.6 * kExp2MaxRelativeError<kDegree>) << "degree " << kDegree;
  testing::Test::RecordProperty("degree_" + std::to_string(kDegree),
                                std::to_string(std::max(scalar, vector)));
}

TEST(Exp2, ErrorOfEveryDegreeIsAsDocumented) {
  check_degree<3>();
  check_degree<4>();
  check_degree<5>();
  check_degree<6>();
}

TEST(Exp2, LinesAreAsGoodAsDocumented) {
  const SoftmaxConstants<PlainVec> constants(1.0f, 1.0f);
  double worst = 0;
  visit_arguments([&](float x) {
    worst = std::max(worst, error_of(constants.exp2(PlainVec::set1(x)).lane[0], x));
  });
  EXPECT_LE(worst, kExp2LinesMaxRelativeError);
  EXPECT_GE(worst, 0.6 * kExp2LinesMaxRelativeError);
  EXPECT_LE(worst, exp2_max_relative_error(DType::kBF16));  // the lse's bound of every CPU
  const auto at = [&](float x) { return constants.exp2(PlainVec::set1(x)).lane[3]; };
  EXPECT_TRUE(std::isnan(at(kNan)));
  EXPECT_EQ(at(-kInfinity), 0.0f);
  EXPECT_EQ(at(-1e30f), 0.0f);
  EXPECT_EQ(at(kInfinity), kInfinity);
  for (float x : {-1e-9f, -0x1p-149f, -0x1p-24f, -3 - 0x1p-22f}) {  // just below an integer
    EXPECT_LE(error_of(at(x), x), kExp2LinesMaxRelativeError) << x;
  }
}

TEST(Exp2, DefaultsKeepTheContract) {
  EXPECT_GE(exp2_degree(DType::kF32), 5);
  EXPECT_LT(exp2_max_relative_error(DType::kBF16), std::ldexp(1.0, -9) / 16);
  EXPECT_LT(exp2_max_relative_error(DType::kF16), std::ldexp(1.0, -12) / 16);
  EXPECT_LT(exp2_max_relative_error(DType::kF32), std::ldexp(1.0, -22));
}

TEST(Exp2, SpecialArguments) {
  for (int degree : {3, 4, 5, 6}) {
    EXPECT_TRUE(std::isnan(exp2_polynomial(degree, kNan)));
    EXPECT_EQ(exp2_polynomial(degree, -kInfinity), 0.0f);
    EXPECT_EQ(exp2_polynomial(degree, -127.0f), 0.0f);
    EXPECT_EQ(exp2_polynomial(degree, -1e30f), 0.0f);
  }
  for (float x : {kNan, -kNan}) {
    EXPECT_TRUE(std::isnan((exp2_vector<PlainVec, 3>(PlainVec::set1(x)).lane[7])));
  }
  EXPECT_EQ((exp2_vector<PlainVec, 3>(PlainVec::set1(-kInfinity)).lane[7]), 0.0f);
}

TanhAndSlope<PlainVec> tanh_and_slope_of(float y) {
  return tanh_and_slope<PlainVec>(PlainVec::set1(y));
}
float tanh_of(float y) { return tanh_and_slope_of(y).tanh.lane[0]; }
float slope_of(float y) { return tanh_and_slope_of(y).slope.lane[0]; }

TEST(Tanh, KeepsItsDigits) {
  double worst = 0;
  for (double x = -12; x < 12; x += 0.00037) {
    const double y = 2 * 1.4426950408889634 * x;
    const float value = tanh_of(static_cast<float>(y));
    const double exact =
        std::tanh(static_cast<double>(static_cast<float>(y)) / (2 * 1.4426950408889634));
    if (exact != 0) worst = std::max(worst, std::fabs(value / exact - 1));
  }
  EXPECT_LT(worst, 4 * std::ldexp(1.0, -24));
  EXPECT_EQ(tanh_of(kInfinity), 1.0f);
  EXPECT_EQ(tanh_of(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(tanh_of(kNan)));
}

TEST(Tanh, ItsSlopeKeepsThemWhereItIsNearlyOne) {
  double worst = 0;
  for (double x = -34; x < 34; x += 0.00037) {
    const auto y = static_cast<float>(2 * 1.4426950408889634 * x);
    const double cosh = std::cosh(static_cast<double>(y) / (2 * 1.4426950408889634));
    worst = std::max(worst, std::fabs(slope_of(y) * cosh * cosh - 1));
  }
  EXPECT_LT(worst, 6 * std::ldexp(1.0, -24));
  for (const float end : {kInfinity, -kInfinity, 126.0f, -126.0f}) EXPECT_EQ(slope_of(end), 0.0f);
  EXPECT_TRUE(std::isnan(slope_of(kNan)));
}

}  // namespace
}  // namespace fa4::internal
