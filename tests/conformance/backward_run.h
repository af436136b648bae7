// Runs a backward on any backend that has one.
#pragma once

#include <string>
#include <vector>

#include "backends.h"
#include "support/backward_case.h"

namespace fa4::internal {

// Why `backend` does not run the backward of `problem`; empty when it does.
std::string unsupported_backward(const Backend& backend, const AttentionProblem& problem);

// With the problem's strides, and guard bytes that nothing wrote to.
struct GradientResult {
  std::vector<unsigned char> dq, dk, dv;
  std::vector<float> dsink;
  int tile_m = 0;
  bool operator==(const GradientResult& other) const;
  // The inputs with these as outputs.
  BackwardArgs outputs_of(const AttentionProblem& problem, BackwardArgs args);
};

// Outputs and the workspace are filled with `fill` first. `inputs` has out and lse; `threads`
// counts on the CPU.
GradientResult run_backward_on(const Backend& backend, const AttentionProblem& problem,
                               const BackwardArgs& inputs, int threads = 2, int fill = 0xff);

// Calls body(backend) for the tested backends that run the problem's backward, with a trace.
template <class Body>
void for_each_backward(const AttentionProblem& problem, const Body& body) {
  for (const Backend& backend : tested_backends()) {
    if (!unsupported_backward(backend, problem).empty()) continue;
    SCOPED_TRACE(backend.name + ", " + std::string(name_of(problem.dtype)));
    body(backend);
  }
}

// Expects the oracle's gradients of every backend, within the contract's bounds.
void expect_gradients(const BackwardCase& c);
void expect_gradients(const Case& c);
// Of one result.
void expect_gradients(const BackwardCase& c, GradientResult& result);

}  // namespace fa4::internal
