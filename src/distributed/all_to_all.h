// Heads over ranks: an exchange gives each rank the whole sequence of some heads, attention runs
// there, another one brings the results back (DeepSpeed-Ulysses, arxiv.org/abs/2309.14509). Pure.
//
// What a rank sends is packed by rows, and what it receives goes straight to its place where the
// whole sequence's tensor is contiguous. So heads are packed before the exchange on the way to the
// whole sequence, and after it on the way back; lse, whose last dimension is the sequence, the
// other way round. What a rank keeps is copied once.
#pragma once

#include "distributed/context_program.h"
#include "distributed/sharded_problem.h"

namespace fa4::internal {

// Whether heads of q are a multiple of `ranks`, and those of k a multiple or a divisor.
bool can_deal_out_heads(const AttentionProblem& whole, int ranks);

ContextProgram all_to_all_forward(const ShardedProblem& problem);
ContextProgram all_to_all_backward(const ShardedProblem& problem);

}  // namespace fa4::internal
