// Problems that the plan tests share.
#pragma once

#include "problem/attention_problem.h"

namespace fa4::internal {

// 4 batch entries, 16 heads, no GQA.
inline ProblemDesc dense(int64_t head_dim, int64_t seqlen = 4096, bool causal = false) {
  ProblemDesc d;
  d.batch = 4;
  d.seqlen_q = d.seqlen_k = seqlen;
  d.heads_q = d.heads_kv = 16;
  d.head_dim = head_dim;
  d.causal = causal;
  return d;
}

// The same attention over keys in pages of 16, as engines ask for it.
inline ProblemDesc in_pages(ProblemDesc d) {
  d.layout_kv = Layout::kPaged;
  d.page_size = 16;
  d.pages_per_seq = (d.seqlen_k + 15) / 16;
  d.num_pages = d.batch * d.pages_per_seq;
  d.has_seqused_k = true;
  return d;
}

}  // namespace fa4::internal
