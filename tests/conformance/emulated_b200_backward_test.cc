// The Blackwell backward on the emulated B200: lengths about its blocks of 128 queries and of 128
// or 256 keys, every head dimension, groups, masks, softcap, layouts. An error of the checker fails
// a launch; formal findings are those of dq's sums alone, which are added in no fixed order: none
// where a pair of CTAs holds all keys, or where deterministic.
#include <gtest/gtest.h>

#include "backward_run.h"
#include "table.h"

namespace fa4::internal {

const std::vector<Backend>& tested_backends() {
  static const std::vector<Backend> kBackends = emulated_backends("emulated:b200");
  return kBackends;
}

namespace {

class EmulatedB200Backward : public BackendTest {};

Case make(int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim) {
  Case c;
  c.desc.dtype = DType::kBF16;
  c.desc.batch = 1;
  c.desc.heads_q = c.desc.heads_kv = 1;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = seqlen_k;
  c.desc.head_dim = head_dim;
  c.seed = 41;
  return c;
}

void expect_right(const Case& c) {
  const AttentionProblem p = AttentionProblem::make(c.desc);
  SCOPED_TRACE(testing::Message() << c.desc.seqlen_q << " x " << c.desc.seqlen_k << ", head_dim "
                                  << p.head_dim << " x " << p.head_dim_v);
  EXPECT_EQ(unsupported_backward(tested_backends()[0], p), "");
  const Device& device = *tested_backends()[0].device.device;
  const int64_t formal_before = device.formal_findings();
  expect_gradients(c);
  constexpr int64_t kPairKeys = 256;
  if (p.seqlen_k <= kPairKeys || p.deterministic) {
    EXPECT_EQ(device.formal_findings(), formal_before);
  }
}

TEST_F(EmulatedB200Backward, LengthsAboutItsBlocks) {
  for (const int64_t head_dim : {64, 96, 128}) {
    for (const auto& [q, k] :
         {std::pair{1, 1}, {64, 128}, {65, 129}, {63, 127}, {192, 64}, {130, 260}}) {
      expect_right(make(q, k, head_dim));
    }
  }
}

TEST_F(EmulatedB200Backward, CausalWithFewerAsManyAndMoreKeys) {
  for (const int64_t head_dim : {64, 128}) {
    for (const auto& [q, k] : {std::pair{260, 100}, {200, 200}, {100, 260}, {64, 400}, {400, 64}}) {
      Case c = make(q, k, head_dim);
      c.desc.causal = true;
      expect_right(c);
    }
  }
}

TEST_F(EmulatedB200Backward, Windows) {
  for (const MaskSpec window : {MaskSpec{20, 0}, {100, 30}, {-1, 70}, {0, 0}, {40, -1}}) {
    Case c = make(210, 300, 64);
    c.desc.window = window;
    expect_right(c);
  }
}

TEST_F(EmulatedB200Backward, DeterministicUnderEveryMask) {
  for (const int64_t head_dim : {64, 128}) {
    for (const MaskSpec window : {MaskSpec{-1, -1}, {-1, 0}, {150, 40}, {-1, 130}, {10, -1}}) {
      Case c = make(300, 600, head_dim);
      c.desc.window = window;
      c.desc.deterministic = true;
      expect_right(c);
    }
  }
  Case c = make(0, 0, 64);
  c.desc.heads_q = 2;
  c.desc.causal = c.desc.deterministic = true;
  pack(c, {300, 0, 1, 130}, {520, 30, 0, 300});
  expect_right(c);
  const BackwardCase given(c);
  const GradientResult once = run_backward_on(tested_backends()[0], given.problem(), given.args());
  EXPECT_TRUE(once == run_backward_on(tested_backends()[0], given.problem(), given.args()));
}

TEST_F(EmulatedB200Backward, Softcap) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t keys : {100, 300}) {  // one CTA, pairs
      Case c = make(150, keys, head_dim);
      c.desc.softcap = 3;
      c.desc.causal = true;
      c.amplitude = 4;
      expect_right(c);
    }
  }
}

TEST_F(EmulatedB200Backward, HeadDimsRoundUp) {
  for (const auto& [d, dv] :
       {std::pair{8, 8}, {72, 40}, {40, 72}, {104, 128}, {128, 64}, {120, 120}}) {
    expect_right(make(70, 140, d));
    Case c = make(70, 140, d);
    c.desc.head_dim_v = dv;
    c.desc.dtype = DType::kF16;
    expect_right(c);
  }
}

TEST_F(EmulatedB200Backward, GroupsOfEverySize) {
  for (const int64_t group : {2, 3, 8}) {
    Case c = make(100, 150, 64);
    c.desc.batch = 2;
    c.desc.heads_kv = 2;
    c.desc.heads_q = 2 * group;
    c.desc.causal = group == 3;
    expect_right(c);
  }
}

TEST_F(EmulatedB200Backward, PackedSequencesWithRoomBehindThem) {
  for (const int64_t head_dim : {64, 128}) {
    Case c = make(0, 0, head_dim);
    c.desc.heads_q = 4;
    c.desc.heads_kv = 2;
    c.desc.causal = true;
    pack(c, {70, 0, 1, 130, 64}, {140, 30, 0, 130, 200});
    c.desc.total_q += 9;
    c.desc.total_k += 70;
    expect_right(c);
  }
}

TEST_F(EmulatedB200Backward, RowsInUse) {
  Case c = make(150, 300, 128);
  c.desc.batch = 3;
  c.desc.has_seqused_q = c.desc.has_seqused_k = true;
  c.seqused_q = {150, 0, 65};
  c.seqused_k = {129, 300, 10};
  c.desc.causal = true;
  expect_right(c);
}

TEST_F(EmulatedB200Backward, SinksDlseGradientsInF32AndEveryScale) {
  for (const float scale : {0.0f, -0.3f, 1.0f}) {
    Case c = make(130, 200, 64);
    c.desc.heads_q = 2;
    c.desc.has_sink = c.desc.has_dlse = true;
    c.desc.grad_dtype = DType::kF32;
    c.desc.softmax_scale = scale;
    c.desc.causal = true;
    expect_right(c);
  }
}

}  // namespace
}  // namespace fa4::internal
