// The Blackwell kernel on the emulated B200: the table, and rows whose maximum rises.
#include "emulated_b200.h"

#include "kernels/softmax/exp2_math.h"
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

// Scores are powers of two already: each block's keys are `step` above those of the block before
// it, and the last one worked on has a single key of that height. So the output is made of the last
// two blocks, whose shares a wrong factor would shift.
TEST_F(EmulatedB200, RowsWhoseMaximumRisesAroundTheThreshold) {
  constexpr int64_t kKeys = 128;
  // Of the threshold: all of them numbers of bf16.
  constexpr float kShares[] = {1.0f - 0x1p-8f, 1.0f,  1.0f + 0x1p-7f, 0.5f,
                               0.25f,          -1.0f, 2.0f,           0.0f};
  for (const auto& [dtype, head_dim] :
       {std::pair{DType::kBF16, int64_t{64}}, {DType::kF16, 64}, {DType::kBF16, 128}}) {
    for (const int64_t blocks : {2, 3, 5}) {
      Case c = self_attention(dtype, head_dim, 1, 1, blocks * kKeys, false);
      c.desc.seqlen_q = 200;
      c.desc.softmax_scale = kLn2;
      const CaseTensors tensors(c);
      const AttentionProblem& p = tensors.problem();
      std::vector<unsigned char> q(static_cast<size_t>(extents_of(p).q) * 2),
          k(static_cast<size_t>(extents_of(p).k) * 2);
      for (int64_t m = 0; m < p.seqlen_q; ++m) {
        store_from_float(dtype, q.data(), m * head_dim, kShares[m % std::size(kShares)]);
        store_from_float(dtype, q.data(), m * head_dim + 1, 1.0f);
      }
      for (int64_t n = 0; n < p.seqlen_k; ++n) {  // the kernel begins at the last block
        const auto height = static_cast<float>(blocks - 1 - n / kKeys) * kRescaleThreshold;
        store_from_float(dtype, k.data(), n * head_dim, height);
        store_from_float(dtype, k.data(), n * head_dim + 1, n > 0 && n < kKeys ? -64.0f : 0.0f);
      }
      ForwardArgs args = tensors.args();
      args.q = q.data();
      args.k = k.data();
      const Reference reference = reference_forward(p, args, 2);
      const Result result = run_on(b200(), p, args);
      expect_accurate(p, args, reference, result);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
