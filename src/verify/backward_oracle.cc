#include "verify/backward_oracle.h"

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
constexpr int64_t kChunk = 128;  // rows between two sums over them
constexpr int64_t kStep = 32;    // rows or keys of a task

using Matrix = std::vector<double>;

size_t count_of(int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); }

// Rows of a tensor, and whether all their values are finite.
bool load_rows(DType dtype, const void* data, int64_t at, int64_t stride, int64_t rows, int64_t dim,
               double* to) {
  bool finite = true;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < dim; ++d) {
      to[r * dim + d] = data == nullptr ? 0.0 : load_as_float(dtype, data, at + r * stride + d);
      finite &= std::isfinite(to[r * dim + d]);
    }
  }
  return finite;
}

Matrix transposed(const Matrix& rows, int64_t count, int64_t dim) {
  Matrix columns(count_of(count, dim));
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t d = 0; d < dim; ++d) columns[d * count + r] = rows[r * dim + d];
  }
  return columns;
}

// The truth, which comes first, or what rounds to the inputs' type on the way.
struct Way {
  Matrix p, ds;        // kChunk x keys, 0 where a row does not see a key
  Matrix lse;          // kChunk
  Matrix sink_weight;  // kChunk: probability of the sink times the row's delta
  Gradients* gradients = nullptr;
  const Rounding* round = nullptr;         // null: not rounded
  const Rounding* round_of_out = nullptr;  // likewise, of the out that ds are made of
  double rounded(double x) const { return round == nullptr ? x : (*round)(x); }
  double rounded_out(double x) const { return round_of_out == nullptr ? x : (*round_of_out)(x); }
};

// One sequence and key head.
class Head {
 public:
  Head(const AttentionProblem& problem, const BackwardArgs& args, int64_t b, int64_t head,
       OutOfTruth out, ThreadPool& pool, BackwardReference& result)
      : p_(problem),
        args_(args),
        view_(sequence_view(problem, args, b)),
        head_(head),
        pool_(pool),
        result_(result),
        round_(problem.dtype),
        k_(count_of(view_.seqlen_k, problem.head_dim)),
        v_(count_of(view_.seqlen_k, problem.head_dim_v)),
        q_(count_of(kChunk, problem.head_dim)),
        dout_(count_of(kChunk, problem.head_dim_v)),
        row_q_(problem.layout_q == Layout::kPacked ? view_.first_q : b * problem.seqlen_q),
        row_k_(problem.layout_kv == Layout::kPacked ? view_.first_k : b * problem.seqlen_k) {
    const int64_t keys = view_.seqlen_k;
    keys_finite_ = load_rows(p_.dtype, args.k, view_.offset_k + head * p_.k.head, p_.k.seqlen, keys,
                             p_.head_dim, k_.data());
    keys_finite_ &= load_rows(p_.dtype, args.v, view_.offset_v + head * p_.v.head, p_.v.seqlen,
                              keys, p_.head_dim_v, v_.data());
    k_columns_ = transposed(k_, keys, p_.head_dim);
    v_columns_ = transposed(v_, keys, p_.head_dim_v);
    for (Way& way : ways_) {
      way.p.resize(count_of(kChunk, keys));
      way.ds.resize(count_of(kChunk, keys));
      way.lse.resize(kChunk);
      way.sink_weight.resize(kChunk);
    }
    ways_[0].gradients = &result.truth;
    ways_[1].gradients = &result.plain;
    ways_[1].round = ways_[1].round_of_out = &round_;
    if (out == OutOfTruth::kGiven) ways_[0].round_of_out = &round_;
  }

  void run() {
    for (int64_t h = head_ * p_.group(); h < (head_ + 1) * p_.group(); ++h) {
      for (int64_t first = 0; first < view_.seqlen_q; first += kChunk) {
        run_chunk(h, first, std::min(kChunk, view_.seqlen_q - first));
      }
    }
    for (Way& way : ways_) finish_keys(way);
  }

 private:
  void run_chunk(int64_t h, int64_t first, int64_t count) {
    bool finite = load_rows(p_.dtype, args_.q, view_.offset_q + first * p_.q.seqlen + h * p_.q.head,
                            p_.q.seqlen, count, p_.head_dim, q_.data());
    finite &= load_rows(p_.dtype, args_.dout,
                        view_.query_offset(p_.dout) + first * p_.dout.seqlen + h * p_.dout.head,
                        p_.dout.seqlen, count, p_.head_dim_v, dout_.data());
    for (Way& way : ways_) {
      std::fill(way.p.begin(), way.p.end(), 0.0);
      std::fill(way.ds.begin(), way.ds.end(), 0.0);
    }
    // A value that is not finite must not meet the zeros of pairs that are hidden: one at a time.
    const int64_t step = finite && keys_finite_ ? kStep : 1;
    pool_.run(ceil_div(count, step), [&](int64_t task, int) {
      run_rows(h, first, task * step, std::min(step, count - task * step));
    });
    pool_.run(ceil_div(view_.seqlen_k, step), [&](int64_t task, int) {
      add_to_keys(first, count, task * step, std::min(step, view_.seqlen_k - task * step));
    });
    if (!p_.has_sink) return;
    for (Way& way : ways_) {
      for (int64_t r = 0; r < count; ++r) way.gradients->dsink[h] -= way.sink_weight[r];
    }
  }

  // Rows [at, at + count) of the chunk that begins at query `first`.
  void run_rows(int64_t h, int64_t first, int64_t at, int64_t count) {
    KeyRange all{view_.seqlen_k, 0};
    for (int64_t r = 0; r < count; ++r) {
      const KeyRange range = keys_of(first + at + r);
      if (range.begin >= range.end) continue;
      all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
    }
    if (all.begin > all.end) all = {0, 0};
    const int64_t width = all.end - all.begin, keys = view_.seqlen_k;
    Matrix s(count_of(count, width)), dp(s.size());
    multiply_add(count, p_.head_dim, width, q_.data() + at * p_.head_dim, p_.head_dim,
                 k_columns_.data() + all.begin, keys, s.data(), width);
    multiply_add(count, p_.head_dim_v, width, dout_.data() + at * p_.head_dim_v, p_.head_dim_v,
                 v_columns_.data() + all.begin, keys, dp.data(), width);
    Matrix out(count_of(count, p_.head_dim_v), 0.0);
    for (Way& way : ways_) {
      softmax_rows(way, h, first, at, count, all, s);
      if (way.round == nullptr) {
        multiply_add(count, width, p_.head_dim_v, way.p.data() + at * keys + all.begin, keys,
                     v_.data() + all.begin * p_.head_dim_v, p_.head_dim_v, out.data(),
                     p_.head_dim_v);
        for (int64_t r = 0; r < count; ++r) {
          std::copy_n(
              out.begin() + r * p_.head_dim_v, p_.head_dim_v,
              result_.out.begin() + ((row_q_ + first + at + r) * p_.heads_q + h) * p_.head_dim_v);
        }
      }
      differentiate_rows(way, h, first, at, count, all, s, dp, out);
      Matrix dq(count_of(count, p_.head_dim), 0.0);
      multiply_add(count, width, p_.head_dim, way.ds.data() + at * keys + all.begin, keys,
                   k_.data() + all.begin * p_.head_dim, p_.head_dim, dq.data(), p_.head_dim);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t row = row_q_ + first + at + r;
        double* to = way.gradients->dq.data() + (row * p_.heads_q + h) * p_.head_dim;
        for (int64_t d = 0; d < p_.head_dim; ++d) {
          to[d] = way.rounded(p_.scale * dq[r * p_.head_dim + d]);
        }
      }
    }
  }

  // p and lse of the rows; `s`: the products of their q with the keys `all`.
  void softmax_rows(Way& way, int64_t h, int64_t first, int64_t at, int64_t count,
                    const KeyRange& all, const Matrix& s) {
    const int64_t width = all.end - all.begin;
    const double sink = p_.has_sink ? sink_of(h) : -kInfinity;
    for (int64_t r = 0; r < count; ++r) {
      const KeyRange range = keys_of(first + at + r);
      double* p = way.p.data() + (at + r) * view_.seqlen_k;
      double row_max = sink;
      for (int64_t n = range.begin; n < range.end; ++n) {
        p[n] = way.rounded(capped(s[r * width + n - all.begin] * p_.scale));
        if (!(p[n] <= row_max)) row_max = p[n];
      }
      double row_sum = sink == -kInfinity ? 0 : std::exp(sink - row_max);
      for (int64_t n = range.begin; n < range.end; ++n) row_sum += p[n] = std::exp(p[n] - row_max);
      const double lse = row_max == -kInfinity ? -kInfinity : row_max + std::log(row_sum);
      way.lse[at + r] = lse;
      const double sum = row_sum * lse_rounding(way, at + r);
      for (int64_t n = range.begin; n < range.end; ++n) {
        p[n] = lse == -kInfinity ? 0.0 : way.rounded(p[n] / sum);
      }
      if (way.round == nullptr) result_.lse[lse_index(h, first + at + r)] = lse;
    }
  }

  // What the probabilities of a backward are off by, which is given its lse as a float.
  double lse_rounding(const Way& way, int64_t r) const {
    const double lse = ways_[0].lse[r];
    if (way.round == nullptr || !std::isfinite(lse)) return 1;
    return std::exp(static_cast<float>(lse) - lse);
  }

  // ds of the rows; `dp`: the products of their dout with the values, `out`: their exact out.
  void differentiate_rows(Way& way, int64_t h, int64_t first, int64_t at, int64_t count,
                          const KeyRange& all, const Matrix& s, const Matrix& dp,
                          const Matrix& out) {
    const int64_t width = all.end - all.begin;
    for (int64_t r = 0; r < count; ++r) {
      const double lse = way.lse[at + r];
      way.sink_weight[at + r] = 0;
      if (lse == -kInfinity) continue;
      double delta = p_.has_dlse ? -args_.dlse[lse_index(h, first + at + r)] : 0.0;
      for (int64_t d = 0; d < p_.head_dim_v; ++d) {
        delta += dout_[(at + r) * p_.head_dim_v + d] * way.rounded_out(out[r * p_.head_dim_v + d]);
      }
      const KeyRange range = keys_of(first + at + r);
      const double* p = way.p.data() + (at + r) * view_.seqlen_k;
      double* ds = way.ds.data() + (at + r) * view_.seqlen_k;
      for (int64_t n = range.begin; n < range.end; ++n) {
        const int64_t i = r * width + n - all.begin;
        ds[n] = way.rounded(p[n] * (way.rounded(dp[i]) - delta) * slope(s[i] * p_.scale));
      }
      if (p_.has_sink) way.sink_weight[at + r] = way.rounded(std::exp(sink_of(h) - lse)) * delta;
    }
  }

  // What rows [first, first + count) add to keys [key, key + keys).
  void add_to_keys(int64_t first, int64_t count, int64_t key, int64_t keys) {
    int64_t begin = count, end = 0;
    for (int64_t j = key; j < key + keys; ++j) {
      const QueryRange range = visible_queries(j, view_.seqlen_q, view_.seqlen_k, p_.mask);
      begin = std::min(begin, std::max<int64_t>(0, range.begin - first));
      end = std::max(end, std::min(count, range.end - first));
    }
    if (begin >= end) return;
    const int64_t rows = end - begin;
    Matrix columns(count_of(keys, rows));
    const auto add = [&](const Matrix& of_rows, const Matrix& right, int64_t dim, double* to) {
      for (int64_t j = 0; j < keys; ++j) {
        for (int64_t r = 0; r < rows; ++r) {
          columns[j * rows + r] = of_rows[(begin + r) * view_.seqlen_k + key + j];
        }
      }
      multiply_add(keys, rows, dim, columns.data(), rows, right.data() + begin * dim, dim, to,
                   p_.heads_kv * dim);
    };
    for (Way& way : ways_) {
      add(way.ds, q_, p_.head_dim, key_row(way.gradients->dk, key, p_.head_dim));
      add(way.p, dout_, p_.head_dim_v, key_row(way.gradients->dv, key, p_.head_dim_v));
    }
  }

  void finish_keys(Way& way) {
    for (int64_t j = 0; j < view_.seqlen_k; ++j) {
      double* dk = key_row(way.gradients->dk, j, p_.head_dim);
      double* dv = key_row(way.gradients->dv, j, p_.head_dim_v);
      for (int64_t d = 0; d < p_.head_dim; ++d) dk[d] = way.rounded(p_.scale * dk[d]);
      for (int64_t d = 0; d < p_.head_dim_v; ++d) dv[d] = way.rounded(dv[d]);
    }
  }

  double* key_row(Matrix& gradient, int64_t j, int64_t dim) const {
    return gradient.data() + ((row_k_ + j) * p_.heads_kv + head_) * dim;
  }
  KeyRange keys_of(int64_t i) const {
    return visible_keys(i, view_.seqlen_q, view_.seqlen_k, p_.mask);
  }
  int64_t lse_index(int64_t h, int64_t i) const {
    return view_.lse_offset + h * view_.lse_head_stride + i;
  }
  double capped(double score) const {
    return p_.softcap == 0 ? score : p_.softcap * std::tanh(score / p_.softcap);
  }
  double sink_of(int64_t h) const { return load_as_float(p_.sink_dtype, args_.sink, h); }
  double slope(double score) const {
    return p_.softcap == 0 ? 1 : slope_of_tanh(score / p_.softcap);
  }

  const AttentionProblem& p_;
  const BackwardArgs& args_;
  SequenceView view_;
  int64_t head_;
  ThreadPool& pool_;
  BackwardReference& result_;
  Rounding round_;
  Matrix k_, v_, q_, dout_, k_columns_, v_columns_;
  int64_t row_q_, row_k_;  // the sequence's first rows in contiguous tensors
  bool keys_finite_ = true;
  Way ways_[2];
};

}  // namespace

BackwardReference reference_backward(const AttentionProblem& p, const BackwardArgs& args,
                                     int threads, OutOfTruth out) {
  BackwardReference result;
  for (Gradients* gradients : {&result.truth, &result.plain}) {
    gradients->dq.assign(count_of(p.rows_q() * p.heads_q, p.head_dim), 0.0);
    gradients->dk.assign(count_of(p.rows_k() * p.heads_kv, p.head_dim), 0.0);
    gradients->dv.assign(count_of(p.rows_k() * p.heads_kv, p.head_dim_v), 0.0);
    gradients->dsink.assign(static_cast<size_t>(p.heads_q), 0.0);
  }
  result.out.assign(static_cast<size_t>(p.out_elements()), 0.0);
  result.lse.assign(static_cast<size_t>(p.lse_elements()), -kInfinity);
  ThreadPool pool(threads);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t head = 0; head < p.heads_kv; ++head) {
      Head(p, args, b, head, out, pool, result).run();
    }
  }
  return result;
}

void store_forward_results(const AttentionProblem& p, const SequenceArgs& args,
                           const BackwardReference& reference, void* out, float* lse) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceView view = sequence_view(p, args, b);
    const int64_t first = p.layout_q == Layout::kPacked ? view.first_q : b * p.seqlen_q;
    for (int64_t h = 0; h < p.heads_q; ++h) {
      for (int64_t i = 0; i < view.seqlen_q; ++i) {
        const int64_t lse_at = view.lse_offset + h * view.lse_head_stride + i;
        lse[lse_at] = static_cast<float>(reference.lse[lse_at]);
        const int64_t from = ((first + i) * p.heads_q + h) * p.head_dim_v;
        const int64_t to = view.offset_out + i * p.out.seqlen + h * p.out.head;
        for (int64_t d = 0; d < p.head_dim_v; ++d) {
          store_from_float(p.out_dtype, out, to + d, static_cast<float>(reference.out[from + d]));
        }
      }
    }
  }
}

}  // namespace fa4::internal
