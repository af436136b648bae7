#include "verify/gradient_samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/backward_oracle.h"

namespace fa4::internal {
namespace {

double dot(DType dtype, const void* a, int64_t at_a, const void* b, int64_t at_b, int64_t dim) {
  double sum = 0;
  for (int64_t d = 0; d < dim; ++d) {
    sum +=
        static_cast<double>(load_as_float(dtype, a, at_a + d)) * load_as_float(dtype, b, at_b + d);
  }
  return sum;
}

void add_scaled(double factor, DType dtype, const void* data, int64_t at,
                std::vector<double>& sums) {
  for (size_t d = 0; d < sums.size(); ++d) {
    sums[d] += factor * load_as_float(dtype, data, at + static_cast<int64_t>(d));
  }
}

struct Pair {
  double p, ds;
};

// The probability of a query and a key that it sees, and the gradient of their score.
Pair differentiate(const AttentionProblem& p, const BackwardArgs& args, const SequenceView& view,
                   int64_t h, int64_t i, int64_t j) {
  const int64_t head = h / p.group();
  const int64_t at_dout = view.query_offset(p.dout) + i * p.dout.seqlen + h * p.dout.head;
  const int64_t at_lse = view.lse_offset + h * view.lse_head_stride + i;
  double score =
      p.scale * dot(p.dtype, args.q, view.offset_q + i * p.q.seqlen + h * p.q.head, args.k,
                    view.offset_k + j * p.k.seqlen + head * p.k.head, p.head_dim);
  double slope = 1;
  if (p.softcap != 0) {
    slope = slope_of_tanh(score / p.softcap);
    score = p.softcap * std::tanh(score / p.softcap);
  }
  const double delta =
      dot(p.out_dtype, args.out, view.offset_out + i * p.out.seqlen + h * p.out.head, args.dout,
          at_dout, p.head_dim_v);
  const double dp = dot(p.dtype, args.dout, at_dout, args.v,
                        view.offset_v + j * p.v.seqlen + head * p.v.head, p.head_dim_v);
  const double probability = std::exp(score - args.lse[at_lse]);
  return {probability, probability * (dp - delta) * slope};
}

}  // namespace

std::vector<double> dq_of_row(const AttentionProblem& p, const BackwardArgs& args, int64_t b,
                              int64_t h, int64_t i) {
  const SequenceView view = sequence_view(p, args, b);
  std::vector<double> dq(static_cast<size_t>(p.head_dim), 0.0);
  const KeyRange range = visible_keys(i, view.seqlen_q, view.seqlen_k, p.mask);
  for (int64_t j = range.begin; j < range.end; ++j) {
    const Pair pair = differentiate(p, args, view, h, i, j);
    add_scaled(pair.ds * p.scale, p.dtype, args.k,
               view.offset_k + j * p.k.seqlen + h / p.group() * p.k.head, dq);
  }
  return dq;
}

KeyGradients gradients_of_key(const AttentionProblem& p, const BackwardArgs& args, int64_t b,
                              int64_t head, int64_t j) {
  const SequenceView view = sequence_view(p, args, b);
  KeyGradients sums{std::vector<double>(static_cast<size_t>(p.head_dim), 0.0),
                    std::vector<double>(static_cast<size_t>(p.head_dim_v), 0.0)};
  const QueryRange range = visible_queries(j, view.seqlen_q, view.seqlen_k, p.mask);
  for (int64_t h = head * p.group(); h < (head + 1) * p.group(); ++h) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const Pair pair = differentiate(p, args, view, h, i, j);
      add_scaled(pair.ds * p.scale, p.dtype, args.q, view.offset_q + i * p.q.seqlen + h * p.q.head,
                 sums.dk);
      add_scaled(pair.p, p.dtype, args.dout,
                 view.query_offset(p.dout) + i * p.dout.seqlen + h * p.dout.head, sums.dv);
    }
  }
  return sums;
}

double gradient_bound(DType dtype, const std::vector<double>& row) {
  double largest = 0;
  for (const double value : row) largest = std::max(largest, std::fabs(value));
  const int bits = dtype == DType::kBF16 ? -5 : dtype == DType::kF16 ? -8 : -15;
  return std::ldexp(largest, bits) + std::ldexp(1.0, bits - 4);
}

}  // namespace fa4::internal
