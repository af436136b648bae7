// Slices of an operation, heads that are computed one after the other, put into one program in
// which slices come and go while others are computed. Pure.
//
//   kExchange   in 0 | in 1   | in 2, back 0 | in 3, back 1 | back 2 | back 3
//   kCompute         | call 0 | call 1       | call 2       | call 3 |
//
// Where a line stands the lanes wait for each other. So two slices are in memory at a time, and
// slice s may lie where slice s - 2 lay.
//
// Attention on a GPU leaves no room beside it until it ends: what is to run beside it has to begin
// before it. So what comes and goes under a slice's calls is one exchange, which begins when the
// line is reached, while the other lane still copies what the exchange before has brought.
#pragma once

#include <string>
#include <vector>

#include "distributed/context_program.h"
#include "distributed/sharded_problem.h"

namespace fa4::internal {

// Messages, and what is done on this rank before and after them.
struct Exchange {
  std::vector<Work> before, after;
  ExchangeStep messages;  // `what` is empty where nothing is exchanged
};

struct Slice {
  // `before` copies from arguments to Place::kStaging, beside other slices' calls; `after` is done
  // on the lane of this slice's calls, without Place::kStaging.
  Exchange in;
  std::vector<Work> calls;
  Exchange back;
  int64_t whole_end = 0, staging_end = 0;  // of what it takes of Place::kWhole and kStaging
};

// `description` begins what every rank says of an exchange.
Program pipeline(const std::vector<Slice>& slices, const std::string& description);

// Writes the slice of that number, whose tensors lie in Place::kWhole from `first_byte` on.
using WriteForward = Slice (*)(const ShardedProblem& problem, int slice, int64_t first_byte,
                               bool wants_lse);
using WriteBackward = Slice (*)(const ShardedProblem& problem, int slice, int64_t first_byte);

// All slices of the problem, each of which makes `calls`.
ContextProgram write_forward(const ShardedProblem& problem, std::vector<AttentionProblem> calls,
                             WriteForward write);
ContextProgram write_backward(const ShardedProblem& problem, std::vector<AttentionProblem> calls,
                              WriteBackward write);

}  // namespace fa4::internal
