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

// What threads copied the tensor core is to see as well: pages 16 bytes apart are no rows of a
// matrix that TMA could gather from. That a fence is missing is a formal finding.
TEST_F(EmulatedB200, RowsOfPagesAreThereForTheTensorCore) {
  for (const int64_t apart : {0, 8}) {
    Case c = self_attention(DType::kBF16, 64, 4, 2, 300, true);
    ProblemDesc& d = c.desc;
    d.layout_kv = Layout::kPaged;
    d.page_size = 3;
    d.num_pages = d.pages_per_seq = 100;
    d.has_seqused_k = true;
    d.k = d.v = {3 * 2 * 64 + apart, 2 * 64, 64};
    c.seqused_k = {299};
    const CaseTensors tensors(c);
    const AttentionProblem& p = tensors.problem();
    const Result result = run_on(b200(), p, tensors.args());
    expect_accurate(p, tensors.args(), reference_forward(p, tensors.args(), 2), result);
    EXPECT_NE(result.kernel.find(apart > 0 ? "_page_rows" : "_page_gathers"), std::string::npos)
        << result.kernel;
  }
}

TEST_F(EmulatedB200, MatchesTheOracle) { EXPECT_GE(expect_all_answers(tested_backends()), 60); }

}  // namespace
}  // namespace fa4::internal
