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

// kScoreLimitLog2 is 2^23: one step below it counts.
TEST(FinishRow, RowsOfScoresBeyondTheLimitAreNan) {
  EXPECT_TRUE(std::isfinite(finish_row(0x1.fffffep22f, 1.0f, true, nullptr).lse));
  EXPECT_TRUE(std::isfinite(finish_row(-0x1.fffffep22f, 1.0f, true, nullptr).lse));
  for (const float row_max : {0x1p23f, -0x1p23f, 1e38f, -1e38f, INFINITY}) {
    EXPECT_TRUE(std::isnan(finish_row(row_max, 1.0f, true, nullptr).lse)) << row_max;
    EXPECT_TRUE(std::isnan(finish_row(row_max, 1.0f, true, nullptr).out_scale)) << row_max;
  }
  const float sink = 5.0f, low = -0x1p22f;
  EXPECT_EQ(finish_row(-1e38f, 1.0f, true, &sink).lse, sink) << "no key counts beside the sink";
  EXPECT_EQ(finish_row(-1e38f, 1.0f, true, &sink).out_scale, 0.0f);
  EXPECT_TRUE(std::isnan(finish_row(-1e38f, 1.0f, true, &low).lse));
  EXPECT_TRUE(std::isnan(finish_row(1e38f, 1.0f, true, &sink).lse));
}

TEST(FinishRow, NanStays) {
  EXPECT_TRUE(std::isnan(finish_row(0.0f, NAN, true, nullptr).lse));
  EXPECT_TRUE(std::isnan(finish_row(0.0f, NAN, true, nullptr).out_scale));
  const float sink = NAN;
  EXPECT_TRUE(std::isnan(finish_row(0.0f, 1.0f, true, &sink).lse));
}

}  // namespace
}  // namespace fa4::internal
