// The C structs as the library's own types.
#pragma once

#include "fa4/fa4.h"
#include "problem/append_args.h"
#include "problem/attention_problem.h"
#include "problem/backward_args.h"
#include "problem/forward_args.h"
#include "problem/merge_args.h"

namespace fa4::internal {

// The caller's problem in this version's shape.
fa4_problem read_problem(const fa4_problem* given);
// Validated. Throws Error{kNotSupported} for an option that this version reserves.
AttentionProblem to_problem(const fa4_problem& problem);
ForwardArgs to_args(const fa4_forward_args* given);
BackwardArgs to_args(const fa4_backward_args* given);
AppendArgs to_args(const fa4_append_args* given);
MergeArgs to_args(const fa4_merge_args* given);
// The num_threads of a plan's options: 0 (as many as the device has) to 4096.
int to_num_threads(int32_t given);

}  // namespace fa4::internal
