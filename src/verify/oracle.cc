#include "verify/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rounding.h"
#include "core/thread_pool.h"
#include "verify/multiply_add.h"
#include "verify/rounding.h"

namespace fa4::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kRows = 32;

// One sequence and key head: keys transposed (head_dim x keys), values (keys x head_dim_v).
struct KeyHead {
  std::vector<double> k, v;
  int64_t num_keys = 0;
  double max_abs_v = 0;
  bool finite = true;
};

// Keys [begin, end) into their places.
void load_keys(const AttentionProblem& p, const ForwardArgs& args, const SequenceView& view,
               int64_t b, int64_t head, int64_t begin, int64_t end, KeyHead& keys) {
  for (int64_t n = begin; n < end; ++n) {
    int64_t at_k = view.offset_k + n * p.k.seqlen, at_v = view.offset_v + n * p.v.seqlen;
    if (p.layout_kv == Layout::kPaged) {
      const PageRow at = page_row_of(p, args, b, head, n);
      at_k = at.page * p.k.batch + at.row * p.k.seqlen;
      at_v = at.page * p.v.batch + at.row * p.v.seqlen;
    }
    at_k += head * p.k.head;
    at_v += head * p.v.head;
    const double k_descale = descale_of(p, args, Quantised::kKeys, b, head, n);
    const double v_descale = descale_of(p, args, Quantised::kValues, b, head, n);
    for (int64_t d = 0; d < p.head_dim; ++d) {
      keys.k[d * keys.num_keys + n] = k_descale * load_as_float(p.kv_dtype, args.k, at_k + d);
    }
    for (int64_t d = 0; d < p.head_dim_v; ++d) {
      keys.v[n * p.head_dim_v + d] = v_descale * load_as_float(p.kv_dtype, args.v, at_v + d);
    }
  }
}

KeyHead load_key_head(const AttentionProblem& p, const ForwardArgs& args, const SequenceView& view,
                      int64_t b, int64_t head, ThreadPool& pool) {
  KeyHead keys;
  keys.num_keys = view.seqlen_k;
  keys.k.resize(static_cast<size_t>(p.head_dim * keys.num_keys));
  keys.v.resize(static_cast<size_t>(keys.num_keys * p.head_dim_v));
  pool.run(ceil_div(keys.num_keys, kRows), [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kRows, keys.num_keys);
    load_keys(p, args, view, b, head, task * kRows, end, keys);
  });
  for (const double value : keys.v) {
    keys.finite &= std::isfinite(value);
    if (std::isfinite(value)) keys.max_abs_v = std::max(keys.max_abs_v, std::fabs(value));
  }
  return keys;
}

// p = softmax of the scores s (with the sink, when finite or NaN, in the sum); returns the lse. An
// empty row leaves p empty. `round` is applied to the scores and to the probabilities.
template <class Round>
double softmax(const double* s, int64_t count, double sink, double* p, Round round) {
  double row_max = sink;
  for (int64_t n = 0; n < count; ++n) {
    p[n] = round(s[n]);
    if (!(p[n] <= row_max)) row_max = p[n];
  }
  double row_sum = sink == -kInfinity ? 0 : std::exp(sink - row_max);
  for (int64_t n = 0; n < count; ++n) row_sum += p[n] = std::exp(p[n] - row_max);
  for (int64_t n = 0; n < count; ++n) p[n] = round(p[n] / row_sum);
  return row_sum == 0 ? -kInfinity : row_max + std::log(row_sum);
}

struct Scratch {
  std::vector<double> q, s, p, plain_p;
  Scratch(const AttentionProblem& problem, int64_t keys)
      : q(kRows * problem.head_dim), s(kRows * keys), p(kRows * keys), plain_p(kRows * keys) {}
};

// Rows [first, first + count) of one query head; count <= kRows. Results go to row-strided places.
void attend_rows(const AttentionProblem& p, const ForwardArgs& args, const SequenceView& view,
                 const KeyHead& keys, int64_t h, int64_t first, int64_t count, Scratch& scratch,
                 double* out, double* plain, int64_t out_stride, double* lse) {
  const Rounding round(p.dtype);
  KeyRange all{keys.num_keys, 0};
  for (int64_t r = 0; r < count; ++r) {
    const KeyRange range = visible_keys(first + r, view.seqlen_q, view.seqlen_k, p.mask);
    if (range.begin < range.end) {
      all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
    }
    const int64_t at = view.offset_q + (first + r) * p.q.seqlen + h * p.q.head;
    for (int64_t d = 0; d < p.head_dim; ++d) {
      scratch.q[r * p.head_dim + d] = load_as_float(p.dtype, args.q, at + d);
    }
  }
  const int64_t width = std::max<int64_t>(0, all.end - all.begin);
  std::fill_n(scratch.s.begin(), count * width, 0.0);
  std::fill_n(scratch.p.begin(), count * width, 0.0);
  std::fill_n(scratch.plain_p.begin(), count * width, 0.0);
  multiply_add(count, p.head_dim, width, scratch.q.data(), p.head_dim, keys.k.data() + all.begin,
               keys.num_keys, scratch.s.data(), width);
  for (int64_t r = 0; r < count; ++r) {
    const KeyRange range = visible_keys(first + r, view.seqlen_q, view.seqlen_k, p.mask);
    const int64_t visible = std::max<int64_t>(0, range.end - range.begin);
    const int64_t at = visible > 0 ? r * width + range.begin - all.begin : 0;
    double* s = scratch.s.data() + at;
    for (int64_t n = 0; n < visible; ++n) {
      s[n] *= p.scale;
      if (p.softcap != 0) s[n] = p.softcap * std::tanh(s[n] / p.softcap);
    }
    const double sink = p.has_sink ? load_as_float(p.sink_dtype, args.sink, h) : -kInfinity;
    lse[r] = softmax(s, visible, sink, scratch.p.data() + at, [](double x) { return x; });
    softmax(s, visible, sink, scratch.plain_p.data() + at, round);
    std::fill_n(out + r * out_stride, p.head_dim_v, 0.0);
    std::fill_n(plain + r * out_stride, p.head_dim_v, 0.0);
  }
  const double* v = keys.v.data() + all.begin * p.head_dim_v;
  multiply_add(count, width, p.head_dim_v, scratch.p.data(), width, v, p.head_dim_v, out,
               out_stride);
  multiply_add(count, width, p.head_dim_v, scratch.plain_p.data(), width, v, p.head_dim_v, plain,
               out_stride);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t d = 0; d < p.head_dim_v; ++d) {
      plain[r * out_stride + d] = round(plain[r * out_stride + d]);
    }
  }
}

// A value that is not finite must not meet the zeros of rows that do not see it: one row at a time.
int64_t rows_at_once(const KeyHead& keys) { return keys.finite ? kRows : 1; }

}  // namespace

int64_t first_row_of(const AttentionProblem& problem, const SequenceArgs& args, int64_t b) {
  return problem.layout_q == Layout::kPacked ? args.cu_seqlens_q[b] : b * problem.seqlen_q;
}

Reference reference_forward(const AttentionProblem& p, const ForwardArgs& args, int threads) {
  Reference result;
  result.out.assign(static_cast<size_t>(p.out_elements()), 0.0);
  result.plain.assign(static_cast<size_t>(p.out_elements()), 0.0);
  result.lse.assign(static_cast<size_t>(p.lse_elements()), -kInfinity);
  ThreadPool pool(threads);
  const int64_t stride = p.heads_q * p.head_dim_v;
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceView view = sequence_view(p, args, b);
    std::vector<Scratch> scratch(static_cast<size_t>(pool.num_threads()),
                                 Scratch(p, view.seqlen_k));
    for (int64_t head = 0; head < p.heads_kv; ++head) {
      const KeyHead keys = load_key_head(p, args, view, b, head, pool);
      result.max_abs_v = std::max(result.max_abs_v, keys.max_abs_v);
      const int64_t step = rows_at_once(keys);
      const int64_t blocks = ceil_div(view.seqlen_q, step);
      pool.run(p.group() * blocks, [&](int64_t task, int worker) {
        const int64_t h = head * p.group() + task / blocks;
        const int64_t first = task % blocks * step;
        const int64_t count = std::min(step, view.seqlen_q - first);
        const int64_t at = (first_row_of(p, args, b) + first) * stride + h * p.head_dim_v;
        double* lse = result.lse.data() + view.lse_offset + h * view.lse_head_stride + first;
        attend_rows(p, args, view, keys, h, first, count, scratch[worker], result.out.data() + at,
                    result.plain.data() + at, stride, lse);
      });
    }
  }
  return result;
}

Reference reference_rows(const AttentionProblem& p, const ForwardArgs& args, int64_t b, int64_t h,
                         int64_t first_row, int64_t count) {
  const SequenceView view = sequence_view(p, args, b);
  ThreadPool pool(1);
  const KeyHead keys = load_key_head(p, args, view, b, h / p.group(), pool);
  Reference result;
  result.out.resize(static_cast<size_t>(count * p.head_dim_v));
  result.plain.resize(result.out.size());
  result.lse.resize(static_cast<size_t>(count));
  result.max_abs_v = keys.max_abs_v;
  Scratch scratch(p, view.seqlen_k);
  const int64_t step = rows_at_once(keys);
  for (int64_t r = 0; r < count; r += step) {
    attend_rows(p, args, view, keys, h, first_row + r, std::min(step, count - r), scratch,
                result.out.data() + r * p.head_dim_v, result.plain.data() + r * p.head_dim_v,
                p.head_dim_v, result.lse.data() + r);
  }
  return result;
}

}  // namespace fa4::internal
