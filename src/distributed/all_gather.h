// Keys and values of all ranks on each rank; queries stay where they are. A rank calls attention
// for each of its chunks over the keys that it sees, and gives the terms of dk and dv back in f32.
// Pure.
//
// What goes to the others is sent from where it lies, and what comes goes to its place in the whole
// sequence's tensor: the keys are copied once.
#pragma once

#include "distributed/context_program.h"
#include "distributed/sharded_problem.h"

namespace fa4::internal {

ContextProgram all_gather_forward(const ShardedProblem& problem);
ContextProgram all_gather_backward(const ShardedProblem& problem);

}  // namespace fa4::internal
