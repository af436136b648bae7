// The Blackwell kernel on the emulated B200: the table, and what it promises about bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "execution.h"
#include "kernels/attention/exp2_math.h"
#include "plan/forward_plan.h"
#include "table.h"

namespace fa4::internal {
namespace {

class EmulatedB200 : public testing::Test {
 protected:
  // Without NVRTC there is no PTX to run.
  void SetUp() override try {
    const CaseTensors tensors(make_row(conformance_rows()[0], DType::kBF16));
    run_on(b200(), tensors.problem(), tensors.args());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCompiler) throw;
    GTEST_SKIP() << error.what();
  }

  static const Backend& b200() {
    static const Backend backend = emulated_backend("emulated:b200");
    return backend;
  }
};

TEST_F(EmulatedB200, MatchesTheOracle) {
  int ran = 0;
  for (const Row& row : conformance_rows()) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      ran += expect_answers(row, dtype, {&b200(), 1});
    }
  }
  EXPECT_GE(ran, 60);
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

// The last of `keys` keys asks alone: the result must be the prefill's row, bit by bit.
void expect_decode_row(const Backend& backend, const CaseTensors& tensors, const Result& prefill,
                       int64_t keys) {
  const AttentionProblem& p = tensors.problem();
  ProblemDesc d;
  d.dtype = p.dtype;
  d.batch = d.seqlen_q = 1;
  d.seqlen_k = keys;
  d.heads_q = p.heads_q;
  d.heads_kv = p.heads_kv;
  d.head_dim = p.head_dim;
  const size_t row_bytes = static_cast<size_t>(p.heads_q * p.head_dim * size_of(p.dtype));
  const size_t at = static_cast<size_t>(keys - 1) * row_bytes;
  ForwardArgs args = tensors.args();
  args.q = static_cast<const unsigned char*>(args.q) + at;
  const Result row = run_on(backend, AttentionProblem::make(d), args);
  EXPECT_TRUE(row.kernel.find("_q1_") != std::string::npos) << row.kernel;
  EXPECT_EQ(std::memcmp(row.out.data(), prefill.out.data() + at, row_bytes), 0)
      << keys << " keys, " << prefill.kernel;
  for (int64_t h = 0; h < p.heads_q; ++h) {
    EXPECT_EQ(row.lse[h], prefill.lse[h * p.seqlen_q + keys - 1]) << keys << " keys, head " << h;
  }
}

TEST_F(EmulatedB200, ADecodeRowHasTheBitsOfItsPrefill) {
  constexpr int64_t kSeqlen = 300;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int64_t heads_q : {3, 4}) {  // four are packed, three are not
        const CaseTensors causal(self_attention(dtype, head_dim, heads_q, 1, kSeqlen, true));
        const Result masked = run_on(b200(), causal.problem(), causal.args());
        for (const int64_t keys : {1, 100, 128, 129, 256, 300}) {
          expect_decode_row(b200(), causal, masked, keys);
        }
        // All rows see all keys, so the last one is a decode row too; a pair of CTAs at 128.
        const CaseTensors full(self_attention(dtype, head_dim, heads_q, 1, kSeqlen, false));
        expect_decode_row(b200(), full, run_on(b200(), full.problem(), full.args()), kSeqlen);
      }
    }
  }
}

// A sequence alone, and packed with others.
TEST_F(EmulatedB200, PackingChangesNoBit) {
  constexpr int64_t kSeqlen = 300, kBefore = 77;
  const Case alone = self_attention(DType::kBF16, 64, 2, 2, kSeqlen, true);
  const CaseTensors tensors(alone);
  const Result dense = run_on(b200(), tensors.problem(), tensors.args());

  Case packed = alone;
  packed.desc.layout_q = packed.desc.layout_kv = Layout::kPacked;
  packed.desc.batch = 3;
  packed.lengths_q = packed.lengths_k = {kBefore, kSeqlen, 5};
  packed.desc.total_q = packed.desc.total_k = kBefore + kSeqlen + 5;
  const CaseTensors others(packed);
  const size_t row_bytes = 2 * 64 * 2, begin = kBefore * row_bytes, bytes = kSeqlen * row_bytes;
  ForwardArgs args = others.args();
  std::vector<std::vector<unsigned char>> memory;
  const auto with_sequence = [&](const void* all, const void* one) {
    const auto* data = static_cast<const unsigned char*>(all);
    memory.emplace_back(data, data + static_cast<size_t>(packed.desc.total_q) * row_bytes);
    std::memcpy(memory.back().data() + begin, one, bytes);
    return memory.back().data();
  };
  args.q = with_sequence(args.q, tensors.args().q);
  args.k = with_sequence(args.k, tensors.args().k);
  args.v = with_sequence(args.v, tensors.args().v);
  const Result result = run_on(b200(), others.problem(), args);
  EXPECT_EQ(std::memcmp(result.out.data() + begin, dense.out.data(), bytes), 0);
  for (int64_t h = 0; h < 2; ++h) {
    const float* lse = result.lse.data() + h * packed.desc.total_q + kBefore;
    EXPECT_EQ(std::memcmp(lse, dense.lse.data() + h * kSeqlen, kSeqlen * sizeof(float)), 0);
  }
}

// Where a block finds its next tile changes no bit; three SMs make every block work on several.
TEST_F(EmulatedB200, EveryTileSourceGivesTheSameBits) {
  Case c = self_attention(DType::kBF16, 64, 2, 1, 600, true);
  c.desc.batch = 2;
  const CaseTensors tensors(c);
  DeviceSpec spec = b200().device.spec;
  const Result wide = run_on(b200(), tensors.problem(), tensors.args());
  spec.num_sms = 3;
  for (const TileSource source :
       {TileSource::kStride, TileSource::kCounter, TileSource::kLaunchControl}) {
    const ForwardPlan plan =
        plan_forward(tensors.problem(), spec, {.num_threads = 0, .tile_source = source});
    EXPECT_EQ(gpu_launch(plan)->schedule.source, source);
    const Result result = run_plan(b200(), plan, tensors.args());
    EXPECT_EQ(result.out, wide.out) << static_cast<int>(source);
    EXPECT_EQ(result.lse, wide.lse) << static_cast<int>(source);
  }
}

// Scores are powers of two already: each block's keys are `step` above those of the block before
// it, and the last one worked on has a single key of that height. So the output is made of the last
// two blocks, whose shares a wrong factor would shift.
TEST_F(EmulatedB200, RowsWhoseMaximumRisesAroundTheThreshold) {
  constexpr int64_t kKeys = 128, kHeadDim = 64;
  // Of the threshold: all of them numbers of bf16.
  constexpr float kShares[] = {1.0f - 0x1p-8f, 1.0f,  1.0f + 0x1p-7f, 0.5f,
                               0.25f,          -1.0f, 2.0f,           0.0f};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t blocks : {2, 3, 5}) {
      Case c = self_attention(dtype, kHeadDim, 1, 1, blocks * kKeys, false);
      c.desc.seqlen_q = 200;
      c.desc.softmax_scale = kLn2;
      const CaseTensors tensors(c);
      const AttentionProblem& p = tensors.problem();
      std::vector<unsigned char> q(static_cast<size_t>(extents_of(p).q) * 2),
          k(static_cast<size_t>(extents_of(p).k) * 2);
      for (int64_t m = 0; m < p.seqlen_q; ++m) {
        store_from_float(dtype, q.data(), m * kHeadDim, kShares[m % std::size(kShares)]);
        store_from_float(dtype, q.data(), m * kHeadDim + 1, 1.0f);
      }
      for (int64_t n = 0; n < p.seqlen_k; ++n) {  // the kernel begins at the last block
        const auto height = static_cast<float>(blocks - 1 - n / kKeys) * kRescaleThreshold;
        store_from_float(dtype, k.data(), n * kHeadDim, height);
        store_from_float(dtype, k.data(), n * kHeadDim + 1, n > 0 && n < kKeys ? -64.0f : 0.0f);
      }
      ForwardArgs args = tensors.args();
      args.q = q.data();
      args.k = k.data();
      const Reference reference = reference_forward(p, args, 2);
      const Result result = run_on(b200(), p, args);
      const Accuracy out = check_out(p, args, reference, result.out.data(), result.tile_m);
      EXPECT_TRUE(out.passed) << out.detail;
      const Accuracy lse = check_lse(p, args, reference, result.lse.data(), result.exp_error);
      EXPECT_TRUE(lse.passed) << lse.detail;
    }
  }
}

}  // namespace
}  // namespace fa4::internal
