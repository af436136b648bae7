#include "verify/backward_oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "verify/cases.h"
#include "verify/oracle.h"
#include "verify/rounding.h"

namespace fa4::internal {
namespace {

Case small(int64_t seqlen_q, int64_t seqlen_k) {
  Case c;
  c.desc.dtype = DType::kF32;
  c.desc.batch = 2;
  c.desc.heads_q = 4;
  c.desc.heads_kv = 2;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = seqlen_k;
  c.desc.head_dim = 8;
  c.desc.head_dim_v = 16;
  c.seed = 5;
  return c;
}

// The sum of dout o out and of dlse o lse, whose gradients the oracle computes; from the forward's
// definition, with one input element moved.
class Loss {
 public:
  explicit Loss(const AttentionProblem& problem, const BackwardArgs& args)
      : p_(problem), args_(args) {}

  double operator()(const std::vector<double>& q, const std::vector<double>& k,
                    const std::vector<double>& v, const std::vector<double>& sink) const {
    double loss = 0;
    for (int64_t b = 0; b < p_.batch; ++b) {
      const SequenceView view = sequence_view(p_, args_, b);
      for (int64_t h = 0; h < p_.heads_q; ++h) {
        for (int64_t i = 0; i < view.seqlen_q; ++i) loss += of_row(q, k, v, sink, b, view, h, i);
      }
    }
    return loss;
  }

 private:
  double of_row(const std::vector<double>& q, const std::vector<double>& k,
                const std::vector<double>& v, const std::vector<double>& sink, int64_t b,
                const SequenceView& view, int64_t h, int64_t i) const {
    const int64_t kv = h / p_.group();
    const int64_t row_q = b * p_.seqlen_q + i;
    const KeyRange range = visible_keys(i, view.seqlen_q, view.seqlen_k, p_.mask);
    double sum = p_.has_sink ? std::exp(sink[h]) : 0;
    std::vector<double> out(static_cast<size_t>(p_.head_dim_v), 0.0);
    for (int64_t j = range.begin; j < range.end; ++j) {
      const int64_t row_k = (b * p_.seqlen_k + j) * p_.heads_kv + kv;
      double score = 0;
      for (int64_t d = 0; d < p_.head_dim; ++d) {
        score += q[(row_q * p_.heads_q + h) * p_.head_dim + d] * k[row_k * p_.head_dim + d];
      }
      score *= p_.scale;
      if (p_.softcap != 0) score = p_.softcap * std::tanh(score / p_.softcap);
      const double weight = std::exp(score);
      sum += weight;
      for (int64_t d = 0; d < p_.head_dim_v; ++d) {
        out[d] += weight * v[row_k * p_.head_dim_v + d];
      }
    }
    if (sum == 0) return 0;
    double loss =
        p_.has_dlse ? args_.dlse[(b * p_.heads_q + h) * p_.seqlen_q + i] * std::log(sum) : 0.0;
    for (int64_t d = 0; d < p_.head_dim_v; ++d) {
      const int64_t at = (row_q * p_.heads_q + h) * p_.head_dim_v + d;
      loss += static_cast<const float*>(args_.dout)[at] * out[d] / sum;
    }
    return loss;
  }

  const AttentionProblem& p_;
  const BackwardArgs& args_;
};

// Compares every gradient with the central difference of the loss.
void expect_differences(const Case& c) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const BackwardArgs args = tensors.backward_args();
  const BackwardReference reference = reference_backward(p, args, 2);
  const Loss loss(p, args);
  // Unused rows hold NaN, which no loss reads.
  const auto doubles = [](const void* data, size_t count) {
    const auto* floats = static_cast<const float*>(data);
    return std::vector<double>(floats, floats + count);
  };
  std::vector<double> inputs[] = {
      doubles(args.q, reference.truth.dq.size()), doubles(args.k, reference.truth.dk.size()),
      doubles(args.v, reference.truth.dv.size()), doubles(args.sink, p.has_sink ? p.heads_q : 0)};
  const std::vector<double>* gradients[] = {&reference.truth.dq, &reference.truth.dk,
                                            &reference.truth.dv, &reference.truth.dsink};
  constexpr double kStep = 1e-4;
  for (int tensor = 0; tensor < 4; ++tensor) {
    for (size_t at = 0; at < inputs[tensor].size(); ++at) {
      const double value = inputs[tensor][at];
      const auto loss_at = [&](double x) {
        inputs[tensor][at] = x;
        return loss(inputs[0], inputs[1], inputs[2], inputs[3]);
      };
      const double difference = (loss_at(value + kStep) - loss_at(value - kStep)) / (2 * kStep);
      inputs[tensor][at] = value;
      const double gradient = (*gradients[tensor])[at];
      const double expected = std::isnan(value) ? 0.0 : difference;
      ASSERT_NEAR(gradient, expected, 1e-6 * (1 + std::fabs(gradient)))
          << "tensor " << tensor << ", element " << at;
    }
  }
}

TEST(BackwardOracle, IsTheDifferenceOfTheLoss) {
  const std::function<void(Case&)> changes[] = {
      [](Case&) {},
      [](Case& c) { c.desc.causal = true; },
      [](Case& c) {
        c.desc.window = {2, 1};
      },
      [](Case& c) { c.desc.softcap = 1.5f; },
      [](Case& c) { c.desc.has_sink = true; },
      [](Case& c) { c.desc.has_dlse = true; },
      [](Case& c) { c.desc.softmax_scale = -0.7f; },
      [](Case& c) { c.desc.softmax_scale = 0.0f; },
      [](Case& c) { c.desc.heads_kv = 1; },
      [](Case& c) {
        c.desc.causal = c.desc.has_sink = c.desc.has_dlse = true;
        c.desc.softcap = 2;
        c.desc.has_seqused_q = c.desc.has_seqused_k = true;
        c.seqused_q = {3, 4};
        c.seqused_k = {2, 5};
      },
  };
  for (const auto& [rows, keys] : {std::pair<int64_t, int64_t>{4, 6}, {5, 5}, {6, 3}}) {
    for (const auto& change : changes) {
      Case c = small(rows, keys);
      change(c);
      if (c.desc.has_seqused_k && keys < 5) c.seqused_k = {0, 3};
      expect_differences(c);
    }
  }
}

TEST(BackwardOracle, ManyRowsAreAddedUpInAnyNumberOfThreads) {
  Case c = small(300, 70);
  c.desc.causal = true;
  const CaseTensors tensors(c);
  const BackwardReference one = reference_backward(tensors.problem(), tensors.backward_args(), 1);
  const BackwardReference four = reference_backward(tensors.problem(), tensors.backward_args(), 4);
  EXPECT_EQ(one.truth.dq, four.truth.dq);
  EXPECT_EQ(one.truth.dk, four.truth.dk);
  EXPECT_EQ(one.truth.dv, four.truth.dv);
  EXPECT_EQ(one.plain.dk, four.plain.dk);
}

TEST(BackwardOracle, PlainIsRoundedToTheType) {
  Case c = small(20, 30);
  c.desc.dtype = DType::kBF16;
  const CaseTensors tensors(c);
  const BackwardReference r = reference_backward(tensors.problem(), tensors.backward_args(), 1);
  bool differs = false;
  for (size_t i = 0; i < r.plain.dk.size(); ++i) {
    EXPECT_EQ(r.plain.dk[i], Rounding(DType::kBF16)(r.plain.dk[i]));
    EXPECT_NEAR(r.plain.dk[i], r.truth.dk[i], 0.2);
    differs |= r.plain.dk[i] != r.truth.dk[i];
  }
  EXPECT_TRUE(differs);
}

TEST(BackwardOracle, OutAndLseAreTheForwards) {
  Case c = small(40, 33);
  c.desc.causal = c.desc.has_sink = true;
  const CaseTensors tensors(c);
  const Reference forward = reference_forward(tensors.problem(), tensors.args(), 1);
  const BackwardReference r = reference_backward(tensors.problem(), tensors.backward_args(), 1);
  for (size_t i = 0; i < r.out.size(); ++i) EXPECT_NEAR(r.out[i], forward.out[i], 1e-13);
  for (size_t i = 0; i < r.lse.size(); ++i) {
    if (std::isfinite(forward.lse[i])) {
      EXPECT_NEAR(r.lse[i], forward.lse[i], 1e-13);
    } else {
      EXPECT_EQ(r.lse[i], forward.lse[i]);
    }
  }
}

TEST(BackwardOracle, NanReachesOnlyWhatSeesIt) {
  Case c = small(5, 5);
  c.desc.batch = c.desc.heads_q = c.desc.heads_kv = 1;
  c.desc.causal = true;
  CaseTensors tensors(c);
  const BackwardArgs args = tensors.backward_args();
  auto* q = const_cast<float*>(static_cast<const float*>(args.q));
  q[2 * 8] = std::numeric_limits<float>::quiet_NaN();  // row 2 sees keys 0 to 2
  const BackwardReference r = reference_backward(tensors.problem(), args, 1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(std::isnan(r.truth.dq[i * 8 + 1]), i == 2) << i;
    EXPECT_EQ(std::isnan(r.truth.dk[i * 8 + 1]), i <= 2) << i;
    EXPECT_EQ(std::isnan(r.truth.dv[i * 16 + 1]), i <= 2) << i;
  }
}

}  // namespace
}  // namespace fa4::internal
