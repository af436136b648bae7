// Rows whose maximum rises from block to block of keys: by as much as a kernel lets it be stale, by
// less and by more, beside rows whose maximum stays, and beside NaN.
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <limits>

#include "backends.h"
#include "core/dtype.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {
namespace {

constexpr int64_t kKeys = 128;  // of a step
constexpr int64_t kRows = 200;

// Scores are powers of two already. The keys of each step are `height` above those of the step
// behind it, times the row's share, and the first step has a single key of that height. Kernels
// begin with the last keys: out is made of the first two steps, whose shares a wrong factor would
// shift.
class RisingScores {
 public:
  RisingScores(DType dtype, int64_t head_dim, int64_t steps, float height, bool causal,
               float scale = kLn2)
      : tensors_(problem_of(dtype, head_dim, steps, causal, scale)),
        args_(tensors_.args()),
        q_(static_cast<size_t>(extents_of(problem()).q) * 2),
        k_(static_cast<size_t>(extents_of(problem()).k) * 2) {
    args_.q = q_.data();
    args_.k = k_.data();
    for (int64_t n = 0; n < problem().seqlen_k; ++n) {
      const auto above = static_cast<float>(steps - 1 - n / kKeys);
      store_from_float(dtype, k_.data(), n * head_dim, above * height);
      store_from_float(dtype, k_.data(), n * head_dim + 1, n > 0 && n < kKeys ? -64.0f : 0.0f);
    }
  }

  void set_share(int64_t row, float share) {
    const int64_t at = row * problem().head_dim;
    store_from_float(problem().dtype, q_.data(), at, share);
    store_from_float(problem().dtype, q_.data(), at + 1, 1.0f);
  }

  const AttentionProblem& problem() const { return tensors_.problem(); }
  const ForwardArgs& args() const { return args_; }

 private:
  static Case problem_of(DType dtype, int64_t head_dim, int64_t steps, bool causal, float scale) {
    Case c;
    c.desc.dtype = dtype;
    c.desc.batch = c.desc.heads_q = c.desc.heads_kv = 1;
    c.desc.seqlen_q = kRows;
    c.desc.seqlen_k = steps * kKeys;
    c.desc.head_dim = head_dim;
    c.desc.causal = causal;
    c.desc.softmax_scale = scale;
    c.seed = 17;
    return c;
  }

  CaseTensors tensors_;
  ForwardArgs args_;
  std::vector<unsigned char> q_, k_;
};

void expect_right(const RisingScores& scores) {
  const Reference reference = reference_forward(scores.problem(), scores.args(), 2);
  for (const Backend& backend : backends_that_take(scores.problem())) {
    SCOPED_TRACE(backend.name);
    expect_accurate(scores.problem(), scores.args(), reference,
                    run_on(backend, scores.problem(), scores.args()));
  }
}

class RisingMaxima : public BackendTest {};

TEST_F(RisingMaxima, AreFollowed) {
  // All of them numbers of bf16.
  constexpr float kShares[] = {1.0f - 0x1p-8f, 1.0f,  1.0f + 0x1p-7f, 0.5f,
                               0.25f,          -1.0f, 2.0f,           0.0f};
  for (const auto& [dtype, head_dim] :
       {std::pair{DType::kBF16, int64_t{64}}, {DType::kF16, 64}, {DType::kBF16, 128}}) {
    for (const float height : {kRescaleThreshold, 14.0f, 20.0f, 40.0f, 300.0f}) {
      for (const int64_t steps : {2, 5}) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ", head_dim " << head_dim
                                        << ", height " << height << ", steps " << steps);
        RisingScores scores(dtype, head_dim, steps, height, steps == 5 && height > 14.0f);
        for (int64_t m = 0; m < kRows; ++m) scores.set_share(m, kShares[m % std::size(kShares)]);
        expect_right(scores);
      }
    }
  }
}

// What the rows beside it see decides when a warp looks for maxima, and must not decide more.
// Scores are no powers of two here, so that a maximum that moves without need changes bits.
TEST_F(RisingMaxima, LeaveOtherRowsTheirBits) {
  constexpr int64_t kHeadDim = 64;
  RisingScores rising(DType::kBF16, kHeadDim, 5, 64.0f, false, 1.0f);
  RisingScores level(DType::kBF16, kHeadDim, 5, 64.0f, false, 1.0f);
  for (int64_t m = 0; m < kRows; ++m) {
    constexpr float kShares[] = {1.0f / 16, 1.0f / 32, 3.0f / 64};
    const bool differs = m % 4 == 1;
    rising.set_share(m, differs ? 2.0f : kShares[m % 3]);
    level.set_share(m, differs ? 0.0f : kShares[m % 3]);
  }
  for (const Backend& backend : backends_that_take(rising.problem())) {
    SCOPED_TRACE(backend.name);
    const Result a = run_on(backend, rising.problem(), rising.args());
    const Result b = run_on(backend, level.problem(), level.args());
    for (int64_t m = 0; m < kRows; ++m) {
      if (m % 4 == 1) continue;
      const auto out = [&](const Result& of) { return of.out.data() + m * kHeadDim * 2; };
      EXPECT_EQ(std::memcmp(out(a), out(b), kHeadDim * 2), 0) << "row " << m;
      EXPECT_EQ(a.lse[static_cast<size_t>(m)], b.lse[static_cast<size_t>(m)]) << "row " << m;
    }
  }
}

// A tile's first row sees its first keys in a block that all of its rows see whole.
TEST_F(RisingMaxima, BeginInABlockWithoutAMask) {
  for (const int64_t head_dim : {64, 128}) {
    Case c;
    c.desc.dtype = DType::kBF16;
    c.desc.batch = c.desc.heads_q = c.desc.heads_kv = 1;
    c.desc.seqlen_q = 400;
    c.desc.seqlen_k = 399;
    c.desc.head_dim = head_dim;
    c.desc.causal = true;
    c.seed = 18;
    const CaseTensors tensors(c);
    const Reference reference = reference_forward(tensors.problem(), tensors.args(), 2);
    for (const Backend& backend : backends_that_take(tensors.problem())) {
      SCOPED_TRACE(backend.name);
      expect_accurate(tensors.problem(), tensors.args(), reference,
                      run_on(backend, tensors.problem(), tensors.args()));
    }
  }
}

TEST_F(RisingMaxima, AreFollowedBesideNaN) {
  RisingScores scores(DType::kBF16, 64, 5, 64.0f, false);
  for (int64_t m = 0; m < kRows; ++m) {
    const bool is_nan = m % 8 == 3;
    scores.set_share(m, is_nan ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
  }
  expect_right(scores);
}

}  // namespace
}  // namespace fa4::internal
