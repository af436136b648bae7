// Attention in double precision, straight from its definition.
//
// `out` is the truth; `plain` is attention in the inputs' type T, computed the textbook way:
// scores, normalised probabilities and out each rounded to T. The accuracy rules compare the two.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/forward_args.h"

namespace fa4::internal {

// Indexed like a contiguous out, (rows, heads_q, head_dim_v), and like lse. Rows that belong to no
// sequence hold 0 (lse -inf).
struct Reference {
  std::vector<double> out;
  std::vector<double> plain;
  std::vector<double> lse;  // natural log; -inf for an empty row without a sink
  double max_abs_v = 0;     // over the finite values of v that belong to a sequence
};

// Host pointers; reads q, k, v, sink and the index tensors of `args`, nothing else. `threads` >= 1.
// Throws std::bad_alloc only.
Reference reference_forward(const AttentionProblem& problem, const ForwardArgs& args, int threads);

// The same for `count` rows of one sequence and query head: out and plain are (count, head_dim_v),
// lse is (count).
Reference reference_rows(const AttentionProblem& problem, const ForwardArgs& args, int64_t b,
                         int64_t h, int64_t first_row, int64_t count);

// Index of the first of a sequence's rows in a contiguous out.
int64_t first_row_of(const AttentionProblem& problem, const SequenceArgs& args, int64_t b);

}  // namespace fa4::internal
