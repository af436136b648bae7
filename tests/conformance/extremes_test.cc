// Scores, sinks and softcaps at both ends of float, alike on every backend.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "backends.h"
#include "verify/oracle.h"

namespace fa4::internal {
namespace {

constexpr double kLimitLog2 = 0x1p23;  // docs/api.md: from here on a row is NaN
constexpr double kLog2E = 1.4426950408889634;

class Extremes : public BackendTest {};

Case small_case(DType dtype) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 1;
  c.desc.heads_q = c.desc.heads_kv = 1;
  c.desc.seqlen_q = 64;
  c.desc.seqlen_k = 200;  // the first block visited ends with hidden keys
  c.desc.head_dim = 64;
  c.seed = 5;
  return c;
}

// q and k of a case, element by element.
struct Inputs {
  std::vector<unsigned char> q, k;
  ForwardArgs args;

  using Change = std::function<float(float, int64_t row)>;
  Inputs(const CaseTensors& tensors, const Change& change_q, const Change& change_k)
      : args(tensors.args()) {
    const AttentionProblem& p = tensors.problem();
    q = changed(p, args.q, p.seqlen_q, change_q);
    k = changed(p, args.k, p.seqlen_k, change_k);
    args.q = q.data();
    args.k = k.data();
  }

 private:
  static std::vector<unsigned char> changed(const AttentionProblem& p, const void* from,
                                            int64_t rows, const Change& change) {
    std::vector<unsigned char> data(static_cast<size_t>(rows * p.head_dim * size_of(p.dtype)));
    for (int64_t i = 0; i < rows * p.head_dim; ++i) {
      store_from_float(p.dtype, data.data(), i,
                       change(load_as_float(p.dtype, from, i), i / p.head_dim));
    }
    return data;
  }
};

template <class Body>
void for_each_backend(const Case& c, const Body& body) {
  const CaseTensors tensors(c);
  for (const Backend& backend : backends_that_take(tensors.problem())) {
    SCOPED_TRACE(backend.name);
    body(backend, tensors);
  }
}

bool row_is_nan(const AttentionProblem& p, const Result& result, int64_t row) {
  int64_t count = 0;
  for (int64_t d = 0; d < p.head_dim_v; ++d) {
    count += std::isnan(load_as_float(p.dtype, result.out.data(), row * p.head_dim_v + d));
  }
  const bool lse = std::isnan(result.lse[static_cast<size_t>(row)]);
  EXPECT_EQ(count, lse ? p.head_dim_v : 0) << "row " << row << ": out and lse differ";
  return lse;
}

// Rows whose largest score is below the limit are right, those beyond it NaN: never one that looks
// as if it had seen nothing. `sign` of all scores.
void expect_right_or_nan(DType dtype, float scale, float sign) {
  Case c = small_case(dtype);
  c.desc.softmax_scale = scale;
  const auto positive = [](float x, int64_t) { return std::fabs(x); };
  const auto signed_k = [&](float x, int64_t) { return sign * std::fabs(x); };
  for_each_backend(c, [&](const Backend& backend, const CaseTensors& tensors) {
    const Inputs inputs(tensors, positive, signed_k);
    const AttentionProblem& p = tensors.problem();
    const Reference reference = reference_forward(p, inputs.args, 2);
    const Result result = run_on(backend, p, inputs.args);
    for (int64_t i = 0; i < p.seqlen_q; ++i) {
      const double lse = reference.lse[static_cast<size_t>(i)];
      const double magnitude = std::fabs(lse) * kLog2E;
      if (std::fabs(magnitude / kLimitLog2 - 1) < 0.001) continue;  // as the device rounds
      const bool is_nan = row_is_nan(p, result, i);
      EXPECT_EQ(is_nan, magnitude > kLimitLog2) << scale << ", row " << i << ", lse " << lse;
      if (is_nan) continue;
      EXPECT_NEAR(result.lse[static_cast<size_t>(i)], lse, 1e-5 * std::max(1.0, std::fabs(lse)))
          << scale << ", row " << i;
    }
  });
}

TEST_F(Extremes, AFiniteScoreNeverEmptiesARow) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int exponent : {10, 17, 19, 26, 30, 100}) {
      for (const float sign : {1.0f, -1.0f}) {
        expect_right_or_nan(dtype, std::ldexp(1.0f, exponent), sign);
      }
    }
  }
}

// The first blocks that a device meets hold scores beyond the limit, a later one does not: what
// they were rounded to must not stay.
TEST_F(Extremes, LowScoresDoNotSpoilARow) {
  for (const int64_t kept : {3, 150}) {
    Case c = small_case(DType::kBF16);
    c.desc.softmax_scale = 1.0f;
    const auto one = [](float, int64_t) { return 1.0f; };
    const auto low = [&](float x, int64_t row) { return row == kept ? x : -0x1p27f - 0x1p20f * x; };
    for_each_backend(c, [&](const Backend& backend, const CaseTensors& tensors) {
      const Inputs inputs(tensors, one, low);
      const AttentionProblem& p = tensors.problem();
      const Reference reference = reference_forward(p, inputs.args, 2);
      const Result result = run_on(backend, p, inputs.args);
      expect_accurate(p, inputs.args, reference, result);
    });
  }
}

TEST_F(Extremes, ARowOfNothingButMinusInfinityIsNan) {
  const auto one = [](float, int64_t) { return 1.0f; };
  const auto minus_infinity = [](float, int64_t) {
    return -std::numeric_limits<float>::infinity();
  };
  for_each_backend(small_case(DType::kBF16),
                   [&](const Backend& backend, const CaseTensors& tensors) {
                     const Inputs inputs(tensors, one, minus_infinity);
                     const Result result = run_on(backend, tensors.problem(), inputs.args);
                     for (const int64_t i : {0, 40, 63}) {
                       EXPECT_TRUE(row_is_nan(tensors.problem(), result, i)) << i;
                     }
                   });
}

// A maximum of several numbers forgets one that is NaN: a row of nothing else has none, and must
// not end as if it saw nothing but the sink.
TEST_F(Extremes, NanReachesLseBesideASink) {
  const auto one = [](float, int64_t) { return 1.0f; };
  const auto nan_in_row_40 = [](float x, int64_t row) { return row == 40 ? std::nanf("") : x; };
  const float sink = 1.0f;
  for (const int64_t seqlen_k : {1, 5, 16, 40, 200}) {
    Case c = small_case(DType::kBF16);
    c.desc.has_sink = true;
    c.desc.seqlen_k = seqlen_k;
    for_each_backend(c, [&](const Backend& backend, const CaseTensors& tensors) {
      Inputs inputs(tensors, nan_in_row_40, one);
      inputs.args.sink = &sink;
      const Result result = run_on(backend, tensors.problem(), inputs.args);
      EXPECT_TRUE(row_is_nan(tensors.problem(), result, 40)) << seqlen_k;
      EXPECT_FALSE(row_is_nan(tensors.problem(), result, 39)) << seqlen_k;
    });
  }
}

TEST_F(Extremes, ASinkOfAnySizeReachesLse) {
  Case c = small_case(DType::kBF16);
  c.desc.has_sink = true;
  for (const bool hides_all : {false, true}) {
    c.desc.window = {-1, hides_all ? -1 : 0};
    c.desc.seqlen_k = hides_all ? 0 : 200;
    for (const float sink : {3e38f, 1e30f, -3e38f}) {
      for_each_backend(c, [&](const Backend& backend, const CaseTensors& tensors) {
        ForwardArgs args = tensors.args();
        args.sink = &sink;
        const Result result = run_on(backend, tensors.problem(), args);
        if (sink > 0 || hides_all) {
          EXPECT_EQ(result.lse[0], sink);
          EXPECT_EQ(load_as_float(DType::kBF16, result.out.data(), 0), 0.0f);
        } else {
          EXPECT_TRUE(std::isfinite(result.lse[0]));
          EXPECT_NE(load_as_float(DType::kBF16, result.out.data(), 0), 0.0f);
        }
      });
    }
  }
}

// A cap that no score comes near changes nothing; one so small that all scores are equal averages.
TEST_F(Extremes, SoftcapsAtBothEndsOfFloat) {
  for (const float softcap : {1e30f, 1e37f, 3e38f, 1e20f, 1e-28f, 1e-38f, 1e-45f}) {
    Case c = small_case(DType::kBF16);
    c.desc.softcap = softcap;
    for_each_backend(c, [&](const Backend& backend, const CaseTensors& tensors) {
      SCOPED_TRACE(softcap);
      const AttentionProblem& p = tensors.problem();
      const Reference reference = reference_forward(p, tensors.args(), 2);
      expect_accurate(p, tensors.args(), reference, run_on(backend, p, tensors.args()));
    });
  }
}

// Kernels cap scores in several ways, by how large those of a warp are beside the softcap: rows and
// keys whose scores are a thousandth of it beside others far above it, rows of NaN, and keys of NaN
// that only later rows see.
TEST_F(Extremes, SoftcapOfScoresOfEverySize) {
  constexpr int64_t kNanRow = 30, kNanKey = 381;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto scale_q = [&](float x, int64_t row) {
    return row == kNanRow ? nan : row % 16 == 5 ? 12 * x : row < 64 ? 0.01f * x : x;
  };
  const auto scale_k = [&](float x, int64_t row) {
    return row == kNanKey ? nan : row % 256 < 128 ? x : row % 16 == 0 ? 20 * x : 0.3f * x;
  };
  for (const int64_t head_dim : {64, 128, 192}) {
    for (const float softcap : {3.0f, 50.0f, 300.0f}) {
      for (const float scale : {0.125f, -0.125f}) {
        Case c = small_case(head_dim == 128 ? DType::kF16 : DType::kBF16);
        c.desc.seqlen_q = 150;
        c.desc.seqlen_k = 400;
        c.desc.head_dim = head_dim;
        c.desc.causal = true;
        c.desc.softcap = softcap;
        c.desc.softmax_scale = scale;
        for_each_backend(c, [&](const Backend& backend, const CaseTensors& tensors) {
          SCOPED_TRACE(testing::Message() << head_dim << ", " << softcap << ", " << scale);
          const Inputs inputs(tensors, scale_q, scale_k);
          const AttentionProblem& p = tensors.problem();
          const Reference reference = reference_forward(p, inputs.args, 2);
          expect_accurate(p, inputs.args, reference, run_on(backend, p, inputs.args));
        });
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
