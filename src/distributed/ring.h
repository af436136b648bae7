// Keys and values that go round: a rank has those of one rank at a time, and sends them on while
// its queries see them. Partial results are f32 and are merged; in the backward f32 sums of dk and
// dv go round behind their keys. Pure.
//
//   kExchange   keys 0 -> 1 | keys 1 -> 2, sums of step 0 | keys 2 -> 3, sums of step 1 | ...
//   kCompute    own keys    | keys 1                      | keys 2                      | ...
//
// Where a line stands the lanes wait for each other.
#pragma once

#include "distributed/context_program.h"
#include "distributed/sharded_problem.h"

namespace fa4::internal {

ContextProgram ring_forward(const ShardedProblem& problem);
ContextProgram ring_backward(const ShardedProblem& problem);

}  // namespace fa4::internal
