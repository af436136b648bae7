// The Blackwell kernel on the emulated B200: the table.
#include "emulated_b200.h"

#include "table.h"

namespace fa4::internal {

const std::vector<Backend>& tested_backends() {
  static const std::vector<Backend> kBackends = emulated_backends("emulated:b200");
  return kBackends;
}

Case self_attention(DType dtype, int64_t head_dim, int64_t heads_q, int64_t heads_kv,
                    int64_t seqlen, bool causal) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 1;
  c.desc.heads_q = heads_q;
  c.desc.heads_kv = heads_kv;
  c.desc.seqlen_q = c.desc.seqlen_k = seqlen;
  c.desc.head_dim = head_dim;
  c.desc.causal = causal;
  c.seed = 17;
  return c;
}

namespace {

TEST_F(EmulatedB200, MatchesTheOracle) { EXPECT_GE(expect_all_answers(tested_backends()), 60); }

}  // namespace
}  // namespace fa4::internal
