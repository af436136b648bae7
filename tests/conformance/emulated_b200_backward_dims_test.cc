// The Blackwell backward at each of its kernels' head dimensions and between them: 96, whose half
// of the columns fills no whole slab, (192, 128), whose products come in turn and whose Q is loaded
// twice into one place, and 256, whose works are split, among them.
#include <gtest/gtest.h>

#include <cmath>

#include "emulated_backward.h"

namespace fa4::internal {
namespace {

class EmulatedB200BackwardDims : public BackendTest,
                                 public testing::WithParamInterface<std::pair<int, int>> {
 protected:
  static Case make(int64_t seqlen_q, int64_t seqlen_k) {
    Case c = small_case(seqlen_q, seqlen_k, GetParam().first);
    c.desc.head_dim_v = GetParam().second;
    c.seed = 43;
    return c;
  }
};

INSTANTIATE_TEST_SUITE_P(Dims, EmulatedB200BackwardDims,
                         testing::Values(std::pair{64, 64}, std::pair{128, 128}, std::pair{96, 96},
                                         std::pair{192, 128}, std::pair{72, 88}, std::pair{136, 64},
                                         std::pair{256, 256}, std::pair{200, 72},
                                         std::pair{40, 136}));

TEST_P(EmulatedB200BackwardDims, LengthsAboutItsBlocks) {
  for (const auto& [q, k] : {std::pair{1, 1}, {64, 128}, {65, 129}, {192, 64}, {400, 260}}) {
    expect_right(make(q, k));
  }
}

TEST_P(EmulatedB200BackwardDims, Masks) {
  for (const MaskSpec window : {MaskSpec{-1, 0}, {100, 30}, {40, -1}}) {
    Case c = make(210, 300);
    c.desc.window = window;
    c.desc.dtype = DType::kF16;
    expect_right(c);
  }
}

TEST_P(EmulatedB200BackwardDims, DeterministicPackedGroups) {
  Case c = make(0, 0);
  c.desc.heads_q = 2;
  c.desc.causal = c.desc.deterministic = true;
  pack(c, {200, 0, 1, 130}, {300, 30, 0, 140});
  c.desc.total_q += 9;
  c.desc.total_k += 70;
  expect_right(c);
  const BackwardCase given(c);
  const GradientResult once = run_backward_on(tested_backends()[0], given.problem(), given.args());
  EXPECT_TRUE(once == run_backward_on(tested_backends()[0], given.problem(), given.args()));
}

TEST_P(EmulatedB200BackwardDims, SoftcapSinkAndDlse) {
  Case c = make(150, 200);
  c.desc.softcap = 3;
  c.desc.has_sink = c.desc.has_dlse = true;
  c.amplitude = 4;
  expect_right(c);
}

// dP is delta then, to the last bits of a float: the parts that the tensor core takes off leave
// nothing.
TEST_P(EmulatedB200BackwardDims, OneKeyHasNoGradientOfScores) {
  Case c = make(70, 1);
  c.desc.grad_dtype = DType::kF32;
  const BackwardCase given(c);
  GradientResult result = run_backward_on(tested_backends()[0], given.problem(), given.args());
  const BackwardArgs gradients = result.outputs_of(given.problem(), given.args());
  const auto* dq = static_cast<const float*>(gradients.dq);
  const auto* dk = static_cast<const float*>(gradients.dk);
  const int64_t d = c.desc.head_dim;
  for (int64_t i = 0; i < c.desc.seqlen_q * d; ++i) ASSERT_LT(std::abs(dq[i]), 1e-4f) << i;
  for (int64_t i = 0; i < d; ++i) ASSERT_LT(std::abs(dk[i]), 1e-4f) << i;
}

}  // namespace
}  // namespace fa4::internal
