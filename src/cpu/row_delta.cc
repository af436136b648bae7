#include "cpu/row_delta.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rounding.h"
#include "cpu/load.h"

namespace fa4::internal {
namespace {

constexpr int64_t kRows = 64;  // of a task

template <DType kOut, DType kDout>
double dot_of_row(int64_t dim, const BackwardArgs& args, int64_t at_out, int64_t at_dout) {
  double sums[4] = {};
  for (int64_t d = 0; d < dim; d += 4) {
    for (int64_t i = 0; i < 4; ++i) {
      sums[i] += static_cast<double>(load<kOut>(args.out, at_out + d + i)) *
                 load<kDout>(args.dout, at_dout + d + i);
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

using DotOfRow = double (*)(int64_t dim, const BackwardArgs& args, int64_t at_out, int64_t at_dout);
template <DType kDout>
DotOfRow dot_for(DType out_dtype) {
  return out_dtype == DType::kF32 ? dot_of_row<DType::kF32, kDout> : dot_of_row<kDout, kDout>;
}
DotOfRow dot_for(const AttentionProblem& p) {
  switch (p.dtype) {
    case DType::kBF16: return dot_for<DType::kBF16>(p.out_dtype);
    case DType::kF16: return dot_for<DType::kF16>(p.out_dtype);
    default: return dot_for<DType::kF32>(p.out_dtype);
  }
}

}  // namespace

void compute_row_delta(const AttentionProblem& p, const BackwardArgs& args, double* delta,
                       ThreadPool& pool) {
  const int64_t blocks = ceil_div(longest_queries(p, args), kRows);
  const DotOfRow dot_of_row = dot_for(p);
  pool.run(capped_product(blocks, p.batch * p.heads_q), [&](int64_t task, int) {
    const int64_t h = task % p.heads_q, block = task / p.heads_q % blocks;
    const SequenceView view = sequence_view(p, args, task / (p.heads_q * blocks));
    const int64_t end = std::min((block + 1) * kRows, view.seqlen_q);
    for (int64_t i = block * kRows; i < end; ++i) {
      const int64_t at = view.lse_offset + h * view.lse_head_stride + i;
      double sum = 0;
      if (args.dout != nullptr) {
        sum = dot_of_row(p.head_dim_v, args, view.offset_out + i * p.out.seqlen + h * p.out.head,
                         view.query_offset(p.dout) + i * p.dout.seqlen + h * p.dout.head);
      }
      delta[at] = p.has_dlse ? sum - args.dlse[at] : sum;
    }
  });
}

void compute_dsink(const AttentionProblem& p, const BackwardArgs& args, const double* delta,
                   ThreadPool& pool) {
  if (args.dsink == nullptr) return;
  pool.run(p.heads_q, [&](int64_t h, int) {
    double sum = 0;
    const double sink = load_as_float(p.sink_dtype, args.sink, h);
    for (int64_t b = 0; b < p.batch; ++b) {
      const SequenceView view = sequence_view(p, args, b);
      const int64_t first = view.lse_offset + h * view.lse_head_stride;
      for (int64_t at = first; at < first + view.seqlen_q; ++at) {
        if (args.lse[at] == -std::numeric_limits<float>::infinity()) continue;
        sum += std::exp(sink - args.lse[at]) * delta[at];
      }
    }
    args.dsink[h] = static_cast<float>(0.0 - sum);
  });
}

}  // namespace fa4::internal
