// Every path's gradients, of random cases, within the contract's bounds.
#include <cmath>

#include "cpu_backward_run.h"

namespace fa4::internal {
namespace {

class CpuBackwardAccuracy : public CpuBackwardTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuBackwardAccuracy, testing::ValuesIn(kAllPaths), path_name);

TEST_P(CpuBackwardAccuracy, RandomCases) {
  int ran = 0;
  for (const Case& c : make_backward_suite(Suite::kQuick, 11)) {
    if (!isa_supports_backward(GetParam(), c.desc.dtype)) continue;
    if (c.desc.seqlen_q * c.desc.seqlen_k > 200 * 300) continue;
    const BackwardCase given(c);
    CpuGradients result = run_cpu_backward(given.problem(), given.args(), GetParam());
    SCOPED_TRACE(testing::Message() << name_of(c.desc.dtype) << ", case of seed " << c.seed);
    expect_accurate(given, result);
    ++ran;
  }
  EXPECT_GT(ran, 20);
}

// f32's bound allows a capped score about one rounding of a float. With a tanh of floats each of
// these was beyond it: 1.28, 1.20 and 1.19 of it.
TEST_P(CpuBackwardAccuracy, SoftcapOfF32) {
  if (!isa_supports_backward(GetParam(), DType::kF32)) GTEST_SKIP() << "no f32";
  const struct {
    int64_t seqlen_q;
    float softcap;
    uint64_t seed;
  } kCases[] = {{24, 38, 46}, {40, 38, 44}, {24, 20, 35}};
  for (const auto& [seqlen_q, softcap, seed] : kCases) {
    Case c;
    c.seed = seed;
    c.desc.dtype = DType::kF32;
    c.desc.batch = 1;
    c.desc.seqlen_q = seqlen_q;
    c.desc.seqlen_k = 50;
    c.desc.heads_q = c.desc.heads_kv = 1;
    c.desc.head_dim = c.desc.head_dim_v = 64;
    c.desc.softcap = softcap;
    c.desc.softmax_scale = 0.5f;
    const BackwardCase given(c);
    CpuGradients result = run_cpu_backward(given.problem(), given.args(), GetParam());
    SCOPED_TRACE(testing::Message() << "softcap " << softcap << ", case of seed " << seed);
    expect_accurate(given, result);
  }
}

// As in the forward (edge_test.cc); the other paths' workspace grows with the longest sequence.
TEST(CpuScalarBackward, TasksAreCountedByTheLengthsOfTheExecution) {
  Case c;
  c.desc.dtype = DType::kBF16;
  c.desc.batch = 1000;
  c.desc.layout_q = c.desc.layout_kv = Layout::kPacked;
  c.desc.seqlen_q = c.desc.seqlen_k = 64;
  c.desc.heads_q = c.desc.heads_kv = 2;
  c.desc.head_dim = c.desc.head_dim_v = 16;
  c.desc.causal = true;
  c.lengths_q = {30, 0, 61};
  c.lengths_k = {20, 5, 64};
  c.lengths_q.resize(1000);
  c.lengths_k.resize(1000);
  c.desc.total_q = 91;
  c.desc.total_k = 89;
  const BackwardCase given(c);
  const CpuGradients expected = run_cpu_backward(given.problem(), given.args(), CpuIsa::kScalar);
  ProblemDesc unbounded = c.desc;
  unbounded.seqlen_q = unbounded.seqlen_k = kMaxSize;
  EXPECT_EQ(run_cpu_backward(AttentionProblem::make(unbounded), given.args(), CpuIsa::kScalar),
            expected);
}

// A softcap far below the scores: the slope of tanh, and the gradients with it, is as small as
// floats go, and then 0.
TEST_P(CpuBackwardAccuracy, ASoftcapThatEveryScoreReaches) {
  for (DType dtype : dtypes()) {
    for (const float softcap : {1e-2f, 1e-3f, 1e-4f}) {
      for (uint32_t seed = 0; seed < 3; ++seed) {
        Case c;
        c.seed = seed;
        c.desc.dtype = dtype;
        c.desc.batch = 1;
        c.desc.seqlen_q = c.desc.seqlen_k = 3;
        c.desc.heads_q = c.desc.heads_kv = 1;
        c.desc.head_dim = 64;
        c.desc.softcap = softcap;
        const BackwardCase given(c);
        CpuGradients result = run_cpu_backward(given.problem(), given.args(), GetParam());
        SCOPED_TRACE(testing::Message()
                     << name_of(dtype) << ", softcap " << softcap << ", " << seed);
        expect_accurate(given, result);
      }
    }
  }
}

// Equal scores and one row of dout for all queries: each query rounds a float total of dv the same
// way. With plain totals the paths came to 3.1 times f32's bound.
TEST_P(CpuBackwardAccuracy, ManyQueriesOfF32) {
  if (!isa_supports_backward(GetParam(), DType::kF32)) GTEST_SKIP() << "no f32";
  constexpr int64_t kQueries = 16384, kKeys = 32, kDim = 16;
  ProblemDesc d;
  d.dtype = DType::kF32;
  d.batch = d.heads_q = d.heads_kv = 1;
  d.seqlen_q = kQueries;
  d.seqlen_k = kKeys;
  d.head_dim = d.head_dim_v = kDim;
  const std::vector<float> zeros(kQueries * kDim, 0.0f);  // q, k, v and out
  const std::vector<float> lse(kQueries, std::log(static_cast<float>(kKeys)));
  std::vector<float> dout(zeros.size());
  for (size_t i = 0; i < dout.size(); ++i) dout[i] = 0.52f + 0.0297f * static_cast<float>(i % kDim);
  BackwardArgs args;
  args.q = args.k = args.v = args.out = zeros.data();
  args.dout = dout.data();
  args.lse = lse.data();
  const CpuGradients result = run_cpu_backward(AttentionProblem::make(d), args, GetParam());
  // A row's weights are 2^(0 - lse) of a rounded lse.
  const double weight = std::exp(-double{lse[0]}) * kQueries;
  const double bound = 0x1p-20 * weight * dout[kDim - 1];
  for (int64_t i = 0; i < kKeys * kDim; ++i) {
    const float dv = load_as_float(DType::kF32, result.dv.data(), i);
    ASSERT_LE(std::fabs(dv - weight * dout[static_cast<size_t>(i % kDim)]), bound) << i;
  }
}

// k and v are asked for only where a query could see them.
TEST_P(CpuBackwardAccuracy, WithoutQueriesNoKeyIsRead) {
  for (DType dtype : dtypes()) {
    Case c;
    c.desc.dtype = dtype;
    c.desc.batch = 2;
    c.desc.seqlen_q = 0;
    c.desc.seqlen_k = 40;
    c.desc.heads_q = c.desc.heads_kv = 2;
    c.desc.head_dim = c.desc.head_dim_v = 64;
    const BackwardCase given(c);
    BackwardArgs args = given.args();
    args.k = args.v = nullptr;
    const CpuGradients result = run_cpu_backward(given.problem(), args, GetParam());
    for (int64_t i = 0; i < 2 * 40 * 2 * 64; ++i) {
      EXPECT_EQ(load_as_float(dtype, result.dk.data(), i), 0) << name_of(dtype) << ", " << i;
      EXPECT_EQ(load_as_float(dtype, result.dv.data(), i), 0) << name_of(dtype) << ", " << i;
    }
  }
}

// Infinity times a probability of 0 would be NaN: each seen key's own probability, and no other, is
// looked up after the products.
TEST_P(CpuBackwardAccuracy, AnInfinityOfDoutTakesEachSeenKeysProbability) {
  constexpr int64_t kKeys = 150, kRow = 40, kHeads = 2, kDim = 64, kColumn = 5;
  for (DType dtype : dtypes()) {
    Case c;
    c.desc.dtype = dtype;
    c.desc.batch = 1;
    c.desc.seqlen_q = c.desc.seqlen_k = kKeys;
    c.desc.heads_q = c.desc.heads_kv = kHeads;
    c.desc.head_dim = c.desc.head_dim_v = kDim;
    c.desc.causal = true;
    const BackwardCase given(c, [&](const BackwardArgs& args) {
      store_from_float(dtype, const_cast<void*>(args.dout), kRow * kHeads * kDim + kColumn,
                       std::numeric_limits<float>::infinity());
    });
    const CpuGradients result = run_cpu_backward(given.problem(), given.args(), GetParam());
    for (int64_t key = 0; key < kKeys; ++key) {
      const float dv = load_as_float(dtype, result.dv.data(), key * kHeads * kDim + kColumn);
      if (key <= kRow) {
        EXPECT_EQ(dv, std::numeric_limits<float>::infinity()) << name_of(dtype) << ", key " << key;
      } else {
        EXPECT_TRUE(std::isfinite(dv)) << name_of(dtype) << ", key " << key << ": " << dv;
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
