// A problem with several tasks for each of a few threads, forward and backward alike.
#pragma once

#include "verify/cases.h"

namespace fa4::internal {

inline Case threaded_case(DType dtype, Layout layout) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 2;
  c.desc.seqlen_q = 210;
  c.desc.seqlen_k = 330;
  c.desc.heads_q = 4;
  c.desc.heads_kv = 2;
  c.desc.head_dim = c.desc.head_dim_v = 40;
  c.desc.causal = true;
  c.desc.layout_q = c.desc.layout_kv = layout;
  if (layout == Layout::kPacked) {
    c.lengths_q = {210, 33};
    c.lengths_k = {99, 330};
    c.desc.total_q = 243;
    c.desc.total_k = 429;
  }
  c.seed = 3;
  return c;
}

}  // namespace fa4::internal
