// The backward of small_attention.h's problems, and its answer from the definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "small_attention.h"

namespace small {

// One batch of sequences of equal lengths, after its forward.
struct Gradients {
  Gradients(Tensors& tensors, int64_t rows_q, int64_t rows_k, uint32_t seed)
      : dout(values(static_cast<size_t>(rows_q * kHeadsQ * kHeadDim), seed + 7)),
        dq(dout.size(), std::numeric_limits<float>::quiet_NaN()),
        dk(static_cast<size_t>(rows_k * kHeadsKV * kHeadDim),
           std::numeric_limits<float>::quiet_NaN()),
        dv(dk),
        forward(tensors) {}

  fa4::BackwardArgs args() {
    fa4::BackwardArgs args;
    args.q = forward.q.data();
    args.k = forward.k.data();
    args.v = forward.v.data();
    args.out = forward.out.data();
    args.lse = forward.lse.data();
    args.dout = dout.data();
    args.dq = dq.data();
    args.dk = dk.data();
    args.dv = dv.data();
    return args;
  }

  std::vector<float> dout, dq, dk, dv;
  Tensors& forward;
};

// The largest difference of dq, dk and dv from the definition in double precision, over one dense
// sequence.
inline double gradient_error(const Gradients& g, int64_t seqlen_q, int64_t seqlen_k, bool causal) {
  const Tensors& t = g.forward;
  std::vector<double> dq(g.dq.size(), 0), dk(g.dk.size(), 0), dv(g.dv.size(), 0);
  const auto dot = [](const float* a, const float* b) {
    double sum = 0;
    for (int d = 0; d < kHeadDim; ++d) sum += static_cast<double>(a[d]) * b[d];
    return sum;
  };
  for (int64_t i = 0; i < seqlen_q; ++i) {
    for (int64_t h = 0; h < kHeadsQ; ++h) {
      const int64_t row = (i * kHeadsQ + h) * kHeadDim;
      const int64_t keys = causal ? std::max<int64_t>(0, i + 1 + seqlen_k - seqlen_q) : seqlen_k;
      std::vector<double> p(static_cast<size_t>(keys)), dp(p.size());
      double sum = 0, delta = 0;
      const auto key_row = [&](int64_t j) {
        return (j * kHeadsKV + h / (kHeadsQ / kHeadsKV)) * kHeadDim;
      };
      for (int64_t j = 0; j < keys; ++j) {
        p[j] = std::exp(dot(&t.q[row], &t.k[key_row(j)]) / 4);  // 1 / sqrt(16)
        dp[j] = dot(&g.dout[row], &t.v[key_row(j)]);
        sum += p[j];
      }
      for (int64_t j = 0; j < keys; ++j) delta += (p[j] /= sum) * dp[j];
      for (int64_t j = 0; j < keys; ++j) {
        const double ds = p[j] * (dp[j] - delta) / 4;
        for (int d = 0; d < kHeadDim; ++d) {
          dq[row + d] += ds * t.k[key_row(j) + d];
          dk[key_row(j) + d] += ds * t.q[row + d];
          dv[key_row(j) + d] += p[j] * g.dout[row + d];
        }
      }
    }
  }
  double worst = 0;
  const auto compare = [&](const std::vector<float>& got, const std::vector<double>& wanted) {
    for (size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::isfinite(got[i]) ? std::abs(got[i] - wanted[i]) : 1e30);
    }
  };
  compare(g.dq, dq);
  compare(g.dk, dk);
  compare(g.dv, dv);
  return worst;
}

}  // namespace small
