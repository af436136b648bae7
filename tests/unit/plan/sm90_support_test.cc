// What Hopper's forward refuses, and in which words.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "hopper.h"
#include "plan/sm90_plan.h"

namespace fa4::internal {
namespace {

TEST(Sm90Support, NamesWhatIsWrong) {
  ProblemDesc d = dense(128);
  d.dtype = DType::kF32;
  EXPECT_EQ(refusal(d), "dtype f32; accepted on a GPU: bf16, f16");
  d = dense(128);
  d.k = {.batch = 4096 * 16 * 132, .seqlen = 16 * 132, .head = 132};
  EXPECT_EQ(refusal(d),
            "head stride 132 of k is 264 bytes; accepted on a GPU: multiples of 16 bytes from 0 "
            "to 2^40");
  d = dense(128);
  EXPECT_TRUE(refusal(d).empty());
}

// Each cluster asks for at most two tiles past the last one.
TEST(Sm90Support, IndicesPastTheLastTileStayBelow2To31) {
  ProblemDesc d = dense(64, 1);
  d.heads_q = d.heads_kv = 49981;
  d.batch = 42966;  // 2^31 - 2 tiles
  EXPECT_EQ(refusal(d),
            "batch 42966 with heads_q 49981 and seqlen_q 1; accepted on a GPU: below 2^31 - 2^20 "
            "tiles of 64 rows");
  d.batch = 42945;  // the most of as many heads
  EXPECT_EQ(refusal(d), "");
  EXPECT_LT(d.batch * d.heads_q + 2 * spec_of(d).schedule.grid, int64_t{1} << 31);
}

// Maxima of packed sequences, whose tensors may be small: tiles by the longest query are 2^64.
TEST(Sm90Support, TilesBeyond64BitsAreTooMany) {
  ProblemDesc d = dense(64, 1 << 29);
  d.layout_q = d.layout_kv = Layout::kPacked;
  d.heads_q = d.heads_kv = 1 << 16;
  d.batch = 1 << 25;
  d.total_q = d.total_k = 2;
  EXPECT_EQ(refusal(d),
            "batch 33554432 with heads_q 65536 and seqlen_q 536870912; accepted on a GPU: below "
            "2^31 - 2^20 tiles of 64 rows");
}

TEST(Sm90Support, PositionsPastASequencesEndStayBelow2To31) {
  constexpr int64_t kLongest = (int64_t{1} << 30) - 513;
  constexpr int64_t kUnboundedWindow = (int64_t{1} << 30) - 1;
  ProblemDesc d = dense(64, kLongest);
  d.heads_q = d.heads_kv = d.batch = 1;
  EXPECT_EQ(refusal(d), "");
  EXPECT_LT(kLongest + spec_of(d).traits.tile_m + kUnboundedWindow + 1, int64_t{1} << 31);
  d.seqlen_k += 1;
  EXPECT_EQ(refusal(d), "seqlen_k 1073741312; accepted on a GPU: at most 1073741311");
  d.seqlen_q += 1;
  EXPECT_EQ(refusal(d), "seqlen_q 1073741312; accepted on a GPU: at most 1073741311");
  d.seqlen_k = 1, d.seqlen_q = kLongest / 4, d.heads_q = 3;
  EXPECT_EQ(refusal(d), "");
  d.seqlen_q += 1;
  EXPECT_EQ(refusal(d),
            "seqlen_q 268435328; accepted on a GPU: at most 268435327, as a query takes 4 rows of "
            "a tile");
  d.seqlen_q = 1, d.layout_q = Layout::kPacked, d.total_q = kLongest + 1;
  EXPECT_EQ(refusal(d), "total_q 1073741312; accepted on a GPU: at most 1073741311");
}

TEST(Sm90Support, StridesOfASingleElementDoNotMatter) {
  ProblemDesc d = dense(128);
  d.batch = 1;
  d.heads_q = d.heads_kv = 1;
  d.q = {.batch = 7, .seqlen = 128, .head = 3};
  EXPECT_TRUE(refusal(d).empty());
}

TEST(Sm90Support, OtherArchitecturesAreNamed) {
  DeviceSpec device = h200_spec();
  device.architecture = "sm_120a";
  const Support support = query_support(AttentionProblem::make(dense(128)), device);
  EXPECT_FALSE(support.supported);
  EXPECT_NE(support.reason.find("architecture sm_120a"), std::string::npos) << support.reason;
  EXPECT_THROW(plan_forward(AttentionProblem::make(dense(128)), device), Error);
}

}  // namespace
}  // namespace fa4::internal
