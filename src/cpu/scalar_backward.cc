#include "cpu/scalar_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rounding.h"

namespace fa4::internal {
namespace {

// A row of floats, converted once.
struct FloatRow {
  float value[kMaxHeadDim];
  void load(DType dtype, const void* data, int64_t at, int64_t dim) {
    for (int64_t d = 0; d < dim; ++d) value[d] = load_as_float(dtype, data, at + d);
  }
};

double dot(const FloatRow& a, const FloatRow& b, int64_t dim) {
  double sums[4] = {};
  for (int64_t d = 0; d < dim; d += 4) {
    for (int64_t i = 0; i < 4; ++i) {
      sums[i] += static_cast<double>(a.value[d + i]) * b.value[d + i];
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void add_scaled(double factor, const FloatRow& row, int64_t dim, double* sums) {
  for (int64_t d = 0; d < dim; ++d) sums[d] += factor * row.value[d];
}

// A query's side of a pair, and a key's.
struct QueryRow {
  FloatRow q, dout;
  float lse;
  double delta;
};
struct KeyRow {
  FloatRow k, v;
};

// What a pair gives: its probability, and the gradient of its score before scale and softcap.
struct Pair {
  double p, ds;
};

class Backward {
 public:
  Backward(const AttentionProblem& problem, const BackwardArgs& args, const double* delta,
           int64_t b)
      : p_(problem), args_(args), delta_(delta), view_(sequence_view(problem, args, b)) {}

  const SequenceView& view() const { return view_; }

  void compute_dq(int64_t h, int64_t i) const {
    QueryRow query;
    load_query(h, i, query);
    const KeyRange range = visible_keys(i, view_.seqlen_q, view_.seqlen_k, p_.mask);
    KeyRow key;
    double dq[kMaxHeadDim] = {};
    for (int64_t j = range.begin; sees(query) && j < range.end; ++j) {
      load_key(h / p_.group(), j, key);
      add_scaled(pair(query, key).ds, key.k, p_.head_dim, dq);
    }
    store(dq, p_.scale, p_.head_dim, args_.dq,
          view_.query_offset(p_.dq) + i * p_.dq.seqlen + h * p_.dq.head);
  }

  void compute_dk_dv(int64_t head, int64_t j) const {
    const QueryRange range = visible_queries(j, view_.seqlen_q, view_.seqlen_k, p_.mask);
    KeyRow key;
    if (range.begin < range.end) load_key(head, j, key);  // without queries k and v may be NULL
    QueryRow query;
    double dk[kMaxHeadDim] = {}, dv[kMaxHeadDim] = {};
    for (int64_t h = head * p_.group(); h < (head + 1) * p_.group(); ++h) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        load_query(h, i, query);
        if (!sees(query)) continue;
        const Pair of = pair(query, key);
        add_scaled(of.ds, query.q, p_.head_dim, dk);
        if (args_.dout != nullptr) add_scaled(of.p, query.dout, p_.head_dim_v, dv);
      }
    }
    store(dk, p_.scale, p_.head_dim, args_.dk,
          view_.key_offset(p_.dk) + j * p_.dk.seqlen + head * p_.dk.head);
    store(dv, 1.0, p_.head_dim_v, args_.dv,
          view_.key_offset(p_.dv) + j * p_.dv.seqlen + head * p_.dv.head);
  }

 private:
  void load_query(int64_t h, int64_t i, QueryRow& row) const {
    const int64_t at = view_.lse_offset + h * view_.lse_head_stride + i;
    row.lse = args_.lse[at];
    row.delta = delta_[at];
    row.q.load(p_.dtype, args_.q, view_.offset_q + i * p_.q.seqlen + h * p_.q.head, p_.head_dim);
    if (args_.dout == nullptr) return;
    row.dout.load(p_.dtype, args_.dout,
                  view_.query_offset(p_.dout) + i * p_.dout.seqlen + h * p_.dout.head,
                  p_.head_dim_v);
  }
  void load_key(int64_t head, int64_t j, KeyRow& row) const {
    row.k.load(p_.dtype, args_.k, view_.offset_k + j * p_.k.seqlen + head * p_.k.head, p_.head_dim);
    row.v.load(p_.dtype, args_.v, view_.offset_v + j * p_.v.seqlen + head * p_.v.head,
               p_.head_dim_v);
  }

  static bool sees(const QueryRow& row) {
    return row.lse != -std::numeric_limits<float>::infinity();
  }

  Pair pair(const QueryRow& query, const KeyRow& key) const {
    double score = dot(query.q, key.k, p_.head_dim) * p_.scale;
    double slope = 1;
    if (p_.softcap != 0) {
      // 1 - tanh^2, a difference that has no digits where tanh is nearly 1.
      const double e = std::exp(-2 * std::abs(score / p_.softcap));
      slope = 4 * e / ((1 + e) * (1 + e));
      score = p_.softcap * std::tanh(score / p_.softcap);
    }
    const double p = std::exp(score - query.lse);
    const double dp = args_.dout == nullptr ? 0 : dot(query.dout, key.v, p_.head_dim_v);
    return {p, p * (dp - query.delta) * slope};
  }

  void store(const double* sums, double factor, int64_t dim, void* data, int64_t at) const {
    for (int64_t d = 0; d < dim; ++d) {
      store_from_float(p_.grad_dtype, data, at + d, static_cast<float>(sums[d] * factor));
    }
  }

  const AttentionProblem& p_;
  const BackwardArgs& args_;
  const double* delta_;
  SequenceView view_;
};

}  // namespace

void scalar_backward(const AttentionProblem& p, const CpuBackwardSpec& spec,
                     const BackwardArgs& args, const double* delta, ThreadPool& pool) {
  const int64_t q_blocks = ceil_div(longest_queries(p, args), spec.tile_m);
  if (args.dq != nullptr) {
    pool.run(capped_product(q_blocks, p.batch * p.heads_q), [&](int64_t task, int) {
      const int64_t h = task % p.heads_q, b = task / p.heads_q % p.batch;
      const int64_t block =
          q_blocks - 1 - task / (p.heads_q * p.batch);  // the longest causal rows first
      const Backward backward(p, args, delta, b);
      const int64_t end = std::min<int64_t>((block + 1) * spec.tile_m, backward.view().seqlen_q);
      for (int64_t i = block * spec.tile_m; i < end; ++i) backward.compute_dq(h, i);
    });
  }
  const int64_t k_blocks = ceil_div(longest_keys(p, args), spec.tile_n);
  if (args.dk == nullptr && args.dv == nullptr) return;
  pool.run(capped_product(k_blocks, p.batch * p.heads_kv), [&](int64_t task, int) {
    const int64_t head = task % p.heads_kv, b = task / p.heads_kv % p.batch;
    const int64_t block = task / (p.heads_kv * p.batch);  // the longest causal columns first
    const Backward backward(p, args, delta, b);
    const int64_t end = std::min<int64_t>((block + 1) * spec.tile_n, backward.view().seqlen_k);
    for (int64_t j = block * spec.tile_n; j < end; ++j) backward.compute_dk_dv(head, j);
  });
}

}  // namespace fa4::internal
