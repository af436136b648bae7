// A small attention problem in f32 through the C ABI, and its answer from the definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "fa4/attention.h"

namespace small {

// Deterministic values in [-1, 1).
inline std::vector<float> values(size_t count, uint32_t seed) {
  std::vector<float> result(count);
  uint32_t state = seed * 2654435761u + 1;
  for (float& value : result) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * (2.0f / 16777216.0f) - 1.0f;
  }
  return result;
}

struct FreeDeleter {
  void operator()(void* pointer) const { std::free(pointer); }
};
using Workspace = std::unique_ptr<void, FreeDeleter>;

// Full of NaN: what an operation reads there it has written.
inline Workspace workspace_of(size_t bytes) {
  Workspace workspace(bytes == 0 ? nullptr : std::aligned_alloc(256, bytes));
  if (bytes != 0) std::memset(workspace.get(), 0xff, bytes);
  return workspace;
}

constexpr int kHeadsQ = 4, kHeadsKV = 2, kHeadDim = 16;

inline fa4::Problem dense_problem(int64_t batch, int64_t seqlen_q, int64_t seqlen_k, bool causal) {
  fa4::Problem problem;
  problem.dtype = FA4_F32;
  problem.batch = batch;
  problem.seqlen_q = seqlen_q;
  problem.seqlen_k = seqlen_k;
  problem.heads_q = kHeadsQ;
  problem.heads_kv = kHeadsKV;
  problem.head_dim = kHeadDim;
  problem.causal = causal ? 1 : 0;
  return problem;
}

// A packed problem for sequences of up to `longest` rows, q and k alike.
inline fa4::Problem packed_problem(int64_t batch, int64_t longest, int64_t total, bool causal) {
  fa4::Problem problem = dense_problem(batch, longest, longest, causal);
  problem.layout_q = problem.layout_kv = FA4_PACKED;
  problem.total_q = problem.total_k = total;
  return problem;
}

// Inputs and outputs of `rows_q` and `rows_k` rows in all.
struct Tensors {
  Tensors(int64_t rows_q, int64_t rows_k, uint32_t seed)
      : q(values(static_cast<size_t>(rows_q * kHeadsQ * kHeadDim), seed)),
        k(values(static_cast<size_t>(rows_k * kHeadsKV * kHeadDim), seed + 1)),
        v(values(static_cast<size_t>(rows_k * kHeadsKV * kHeadDim), seed + 2)),
        out(q.size(), std::numeric_limits<float>::quiet_NaN()),
        lse(static_cast<size_t>(rows_q * kHeadsQ), std::numeric_limits<float>::quiet_NaN()) {}

  fa4::ForwardArgs args() {
    fa4::ForwardArgs args;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.out = out.data();
    args.lse = lse.data();
    return args;
  }

  std::vector<float> q, k, v, out, lse;
};

// The largest difference of `out` from attention in double precision, over one sequence whose rows
// start at `first_q` and `first_k`.
inline double error_of(const Tensors& t, int64_t first_q, int64_t seqlen_q, int64_t first_k,
                       int64_t seqlen_k, bool causal) {
  double worst = 0;
  for (int64_t i = 0; i < seqlen_q; ++i) {
    for (int64_t h = 0; h < kHeadsQ; ++h) {
      const float* q = &t.q[static_cast<size_t>(((first_q + i) * kHeadsQ + h) * kHeadDim)];
      const int64_t keys = causal ? std::max<int64_t>(0, i + 1 + seqlen_k - seqlen_q) : seqlen_k;
      double sum = 0;
      double out[kHeadDim] = {};
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t row = ((first_k + j) * kHeadsKV + h / (kHeadsQ / kHeadsKV)) * kHeadDim;
        double score = 0;
        for (int d = 0; d < kHeadDim; ++d) {
          score += static_cast<double>(q[d]) * t.k[static_cast<size_t>(row + d)];
        }
        const double weight = std::exp(score / 4);  // 1 / sqrt(16)
        sum += weight;
        for (int d = 0; d < kHeadDim; ++d) out[d] += weight * t.v[static_cast<size_t>(row + d)];
      }
      for (int d = 0; d < kHeadDim; ++d) {
        const float got = t.out[static_cast<size_t>(((first_q + i) * kHeadsQ + h) * kHeadDim + d)];
        const double wanted = keys == 0 ? 0 : out[d] / sum;
        const double error = std::isfinite(got) ? std::abs(got - wanted) : 1e30;
        worst = std::max(worst, error);
      }
    }
  }
  return worst;
}

constexpr double kBound = 1e-5;  // f32 on values below 1

}  // namespace small
