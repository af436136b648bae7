#include "cpu/finish_row.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fa4::internal {
namespace {

TEST(FinishRow, SumAndMaximumGiveScaleAndLse) {
  const RowEnd end = finish_row(3.0f, 4.0f, true, nullptr);
  EXPECT_FLOAT_EQ(end.out_scale, 0.25f);
  EXPECT_FLOAT_EQ(end.lse, static_cast<float>(std::log(32.0)));
}

TEST(FinishRow, SinkJoinsTheSum) {
  const float sink = 0.0f;
  const RowEnd end = finish_row(1.0f, 1.5f, true, &sink);  // 3 beside 1
  EXPECT_FLOAT_EQ(end.out_scale, 0.5f);
  EXPECT_FLOAT_EQ(end.lse, static_cast<float>(std::log(4.0)));
}

TEST(FinishRow, ExtremesDoNotOverflow) {
  const float large = 3e38f, small = -3e38f;
  EXPECT_EQ(finish_row(0.0f, 1.0f, true, &large).lse, large);
  EXPECT_EQ(finish_row(0.0f, 1.0f, true, &large).out_scale, 0.0f);
  EXPECT_EQ(finish_row(0.0f, 1.0f, true, &small).out_scale, 1.0f);
  EXPECT_EQ(finish_row(0.0f, 1.0f, true, &small).lse, 0.0f);
}

TEST(FinishRow, EmptyRows) {
  const float sink = -1.25f;
  EXPECT_EQ(finish_row(-INFINITY, 0.0f, false, nullptr).lse, -INFINITY);
  EXPECT_EQ(finish_row(-INFINITY, 0.0f, false, nullptr).out_scale, 0.0f);
  EXPECT_EQ(finish_row(-INFINITY, 0.0f, false, &sink).lse, sink);
  // Keys are seen, but each scores -infinity: the sink alone counts, and without one it is 0 / 0.
  EXPECT_EQ(finish_row(-INFINITY, 0.0f, true, &sink).lse, sink);
  EXPECT_TRUE(std::isnan(finish_row(-INFINITY, 0.0f, true, nullptr).lse));
}

TEST(FinishRow, NanStays) {
  EXPECT_TRUE(std::isnan(finish_row(0.0f, NAN, true, nullptr).lse));
  EXPECT_TRUE(std::isnan(finish_row(0.0f, NAN, true, nullptr).out_scale));
  const float sink = NAN;
  EXPECT_TRUE(std::isnan(finish_row(0.0f, 1.0f, true, &sink).lse));
}

}  // namespace
}  // namespace fa4::internal
