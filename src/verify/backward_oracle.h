// The gradients of attention in double precision, straight from their definition.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "problem/backward_args.h"

namespace fa4::internal {

// 1 - tanh(x)^2, a difference that has no digits where tanh is nearly 1.
inline double slope_of_tanh(double x) {
  const double e = std::exp(-2 * std::abs(x));
  return 4 * e / ((1 + e) * (1 + e));
}

// Indexed like contiguous tensors: dq (rows of q, heads_q, head_dim), dk (rows of k, heads_kv,
// head_dim), dv (..., head_dim_v), dsink (heads_q). Rows that belong to no sequence hold 0.
struct Gradients {
  std::vector<double> dq, dk, dv, dsink;
};

// What the truth takes for out, which enters every ds by rowsum(dout o out).
enum class OutOfTruth {
  kGiven,  // what a backward is given, and cannot know better: rounded to the inputs' type T
  kExact,  // what a whole differentiation has, of forward and backward
};

struct BackwardReference {
  Gradients truth;
  // In the inputs' type T, the textbook way: scores, probabilities, out, the probabilities'
  // gradient, the scores' and the results each rounded to T. out is the truth's, rounded, and
  // probabilities carry the rounding of the truth's lse to a float, since a backward is given the
  // two.
  Gradients plain;
  // What the forward hands over: indexed like a contiguous out, and like lse; not rounded.
  std::vector<double> out, lse;
};

// Host pointers; reads q, k, v, dout, dlse, sink and the index tensors of `args`, nothing else: out
// and lse are its own. Not paged. `threads` >= 1 changes no bit. Throws std::bad_alloc only.
BackwardReference reference_backward(const AttentionProblem& problem, const BackwardArgs& args,
                                     int threads, OutOfTruth out = OutOfTruth::kGiven);

// Writes the reference's out, with the problem's dtype and strides, and lse as a forward does.
void store_forward_results(const AttentionProblem& problem, const SequenceArgs& args,
                           const BackwardReference& reference, void* out, float* lse);

}  // namespace fa4::internal
