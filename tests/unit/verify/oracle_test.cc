#include "verify/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/cases.h"
#include "verify/multiply_add.h"
#include "verify/random.h"
#include "verify/rounding.h"

namespace fa4::internal {
namespace {

ProblemDesc small(int64_t seqlen_q, int64_t seqlen_k) {
  ProblemDesc d;
  d.dtype = DType::kF32;
  d.batch = 1;
  d.heads_q = d.heads_kv = 1;
  d.seqlen_q = seqlen_q;
  d.seqlen_k = seqlen_k;
  d.head_dim = d.head_dim_v = 8;
  return d;
}

// f32 tensors of one head; q and k zero, v[n][d] = n + d / 8.
struct Plain {
  std::vector<float> q, k, v;
  ForwardArgs args;
  explicit Plain(const AttentionProblem& p)
      : q(p.seqlen_q * 8), k(p.seqlen_k * 8), v(p.seqlen_k * 8) {
    for (int64_t i = 0; i < p.seqlen_k * 8; ++i) v[i] = static_cast<float>(i) / 8;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
  }
};

TEST(Oracle, EqualScoresAverage) {
  const AttentionProblem p = AttentionProblem::make(small(2, 5));
  const Plain tensors(p);
  const Reference r = reference_forward(p, tensors.args, 1);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(r.out[i], 2 + (i % 8) / 8.0, 1e-14);
  EXPECT_NEAR(r.lse[0], std::log(5.0), 1e-14);
  EXPECT_EQ(r.max_abs_v, 39.0 / 8);
}

TEST(Oracle, CausalIsBottomRight) {
  ProblemDesc d = small(4, 3);
  d.causal = true;
  const AttentionProblem p = AttentionProblem::make(d);
  const Plain tensors(p);
  const Reference r = reference_forward(p, tensors.args, 2);
  EXPECT_EQ(r.out[0], 0.0);
  EXPECT_EQ(r.lse[0], -std::numeric_limits<double>::infinity());
  for (int i = 1; i < 4; ++i) {
    EXPECT_NEAR(r.out[i * 8], (i - 1) / 2.0, 1e-14);
    EXPECT_NEAR(r.lse[i], std::log(static_cast<double>(i)), 1e-14);
  }
}

TEST(Oracle, SinkTakesPart) {
  ProblemDesc d = small(4, 3);
  d.causal = d.has_sink = true;
  const AttentionProblem p = AttentionProblem::make(d);
  Plain tensors(p);
  const float sink = 0.5f;
  tensors.args.sink = &sink;
  const Reference r = reference_forward(p, tensors.args, 1);
  EXPECT_EQ(r.lse[0], 0.5);
  EXPECT_EQ(r.out[0], 0.0);
  EXPECT_NEAR(r.lse[3], std::log(3 + std::exp(0.5)), 1e-14);
  EXPECT_NEAR(r.out[3 * 8], 3 / (3 + std::exp(0.5)), 1e-14);
}

TEST(Oracle, PlainIsRoundedToTheType) {
  ProblemDesc d = small(3, 7);
  d.dtype = DType::kBF16;
  Case c;
  c.desc = d;
  const CaseTensors tensors(c);
  const Reference r = reference_forward(tensors.problem(), tensors.args(), 1);
  bool differs = false;
  for (size_t i = 0; i < r.plain.size(); ++i) {
    EXPECT_EQ(r.plain[i], Rounding(DType::kBF16)(r.plain[i]));
    EXPECT_NEAR(r.plain[i], r.out[i], 0.05);
    differs |= r.plain[i] != r.out[i];
  }
  EXPECT_TRUE(differs);
}

TEST(Oracle, RowsAreThoseOfTheWhole) {
  Case c;
  c.desc = small(70, 90);
  c.desc.heads_q = 4;
  c.desc.heads_kv = 2;
  c.desc.batch = 2;
  c.desc.causal = true;
  c.desc.softcap = 5;
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const Reference whole = reference_forward(p, tensors.args(), 3);
  const Reference rows = reference_rows(p, tensors.args(), 1, 3, 20, 37);
  for (int64_t m = 0; m < 37; ++m) {
    for (int64_t n = 0; n < 8; ++n) {
      const size_t at = static_cast<size_t>(((70 + 20 + m) * 4 + 3) * 8 + n);
      EXPECT_NEAR(rows.out[m * 8 + n], whole.out[at], 1e-12);
      EXPECT_EQ(rows.plain[m * 8 + n], whole.plain[at]);
    }
    EXPECT_NEAR(rows.lse[m], whole.lse[(4 + 3) * 70 + 20 + m], 1e-12);
  }
}

TEST(Oracle, ThreadsDoNotChangeIt) {
  Case c;
  c.desc = small(100, 130);
  c.desc.heads_q = 3;
  c.desc.heads_kv = 1;
  const CaseTensors tensors(c);
  const Reference one = reference_forward(tensors.problem(), tensors.args(), 1);
  const Reference four = reference_forward(tensors.problem(), tensors.args(), 4);
  EXPECT_EQ(one.out, four.out);
  EXPECT_EQ(one.plain, four.plain);
  EXPECT_EQ(one.lse, four.lse);
}

TEST(Oracle, NanReachesOnlyTheRowsThatSeeIt) {
  ProblemDesc d = small(4, 4);
  d.causal = true;
  const AttentionProblem p = AttentionProblem::make(d);
  for (const bool in_v : {false, true}) {
    Plain tensors(p);
    (in_v ? tensors.v : tensors.k)[2 * 8] = std::numeric_limits<float>::quiet_NaN();
    const Reference r = reference_forward(p, tensors.args, 1);
    for (int m = 0; m < 4; ++m) EXPECT_EQ(std::isnan(r.out[m * 8]), m >= 2) << m << in_v;
  }
}

TEST(MultiplyAdd, AnySize) {
  Random random(3);
  for (const auto& [rows, inner, cols] : {std::array<int64_t, 3>{1, 1, 1},
                                          {3, 5, 7},
                                          {4, 8, 130},
                                          {2, 6, 128},
                                          {1, 0, 4},
                                          {5, 19, 257}}) {
    std::vector<double> a(rows * inner), b(inner * cols), c(rows * cols, 0.25);
    for (double& x : a) x = random.normal();
    for (double& x : b) x = random.normal();
    multiply_add(rows, inner, cols, a.data(), inner, b.data(), cols, c.data(), cols);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < cols; ++j) {
        double sum = 0.25;
        for (int64_t i = 0; i < inner; ++i) sum += a[r * inner + i] * b[i * cols + j];
        ASSERT_NEAR(c[r * cols + j], sum, 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
