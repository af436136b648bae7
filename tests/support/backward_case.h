// A backward to run: its inputs, and what it should give.
#pragma once

#include <limits>
#include <vector>

#include "verify/accuracy.h"
#include "verify/cases.h"

namespace fa4::internal {

// A case, what it should give, and the out and lse that its backward reads.
struct BackwardCase {
  CaseTensors tensors;
  BackwardReference reference;
  std::vector<unsigned char> out;
  std::vector<float> lse;

  explicit BackwardCase(const Case& c) : BackwardCase(c, [](const BackwardArgs&) {}) {}
  // `change` may write to the inputs before the reference is made.
  template <class Change>
  BackwardCase(const Case& c, const Change& change) : tensors(c) {
    const AttentionProblem& p = tensors.problem();
    change(tensors.backward_args());
    reference = reference_backward(p, tensors.backward_args(), 2);
    out.assign(static_cast<size_t>(extents_of(p).out) * size_of(p.dtype) + 1, 0xff);
    lse.assign(static_cast<size_t>(p.lse_elements()) + 1, std::numeric_limits<float>::quiet_NaN());
    store_forward_results(p, tensors.backward_args(), reference, out.data(), lse.data());
  }
  const AttentionProblem& problem() const { return tensors.problem(); }
  BackwardArgs args() const {
    BackwardArgs args = tensors.backward_args();
    args.out = out.data();
    args.lse = lse.data();
    return args;
  }
};

}  // namespace fa4::internal
