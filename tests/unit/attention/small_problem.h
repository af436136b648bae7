// Problems of these tests.
#pragma once

#include "problem/attention_problem.h"

namespace fa4::internal {

inline AttentionProblem small_problem(DType dtype, bool causal, int64_t seqlen = 20) {
  ProblemDesc desc;
  desc.dtype = dtype;
  desc.batch = 2;
  desc.seqlen_q = desc.seqlen_k = seqlen;
  desc.heads_q = 4;
  desc.heads_kv = 2;
  desc.head_dim = 64;
  desc.causal = causal;
  return AttentionProblem::make(desc);
}

}  // namespace fa4::internal
