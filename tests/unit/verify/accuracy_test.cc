#include "verify/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/cases.h"
#include "verify/rounding.h"

namespace fa4::internal {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A problem with its truth, and out as the truth rounded to the type.
struct Checked {
  Case c;
  CaseTensors tensors;
  Reference reference;
  std::vector<unsigned char> out;
  std::vector<float> lse;

  explicit Checked(DType dtype)
      : c(make_case(dtype)),
        tensors(c),
        reference(reference_forward(tensors.problem(), tensors.args(), 2)),
        out(reference.out.size() * size_of(dtype)),
        lse(reference.lse.begin(), reference.lse.end()) {
    for (size_t i = 0; i < reference.out.size(); ++i) set(i, reference.out[i]);
  }
  static Case make_case(DType dtype) {
    Case c;
    c.desc.dtype = dtype;
    c.desc.batch = 2;
    c.desc.heads_q = c.desc.heads_kv = 2;
    c.desc.seqlen_q = 200;
    c.desc.seqlen_k = 150;
    c.desc.head_dim = c.desc.head_dim_v = 16;
    c.desc.causal = true;
    return c;
  }
  void set(size_t i, double value) {
    store_from_float(c.desc.dtype, out.data(), static_cast<int64_t>(i),
                     static_cast<float>(Rounding(c.desc.dtype)(value)));
  }
  Accuracy check() const {
    return check_out(tensors.problem(), tensors.args(), reference, out.data(), 64);
  }
  Accuracy check_lse_now() const {
    return check_lse(tensors.problem(), tensors.args(), reference, lse.data(), 1e-6);
  }
};

TEST(Accuracy, TheRoundedTruthPasses) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Checked checked(dtype);
    const Accuracy accuracy = checked.check();
    EXPECT_TRUE(accuracy.passed) << accuracy.detail;
    EXPECT_LE(accuracy.error, accuracy.bound);
    EXPECT_GT(accuracy.error, 0);
    EXPECT_EQ(accuracy.rms_bound > 0, dtype != DType::kF32);
  }
}

TEST(Accuracy, OneWrongElementIsNamed) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    Checked checked(dtype);
    const double bound = checked.check().bound;
    // (b=1, h=1, m=130, n=3) of (2, 200, 2, 16)
    const size_t at = ((200 + 130) * 2 + 1) * 16 + 3;
    checked.set(at, checked.reference.out[at] + 3 * bound);
    const Accuracy accuracy = checked.check();
    EXPECT_FALSE(accuracy.passed);
    EXPECT_GT(accuracy.error, accuracy.bound);
    EXPECT_NE(accuracy.detail.find("(b=1, h=1, m=130, n=3)"), std::string::npos) << accuracy.detail;
    EXPECT_NE(accuracy.detail.find("m_block=2"), std::string::npos) << accuracy.detail;
  }
}

// A bias that no single element betrays.
TEST(Accuracy, TheRmsOfABlockCountsToo) {
  Checked checked(DType::kBF16);
  const Accuracy before = checked.check();
  for (int64_t m = 0; m < 128; ++m) {
    for (int64_t n = 0; n < 16; ++n) {
      const size_t at = static_cast<size_t>((m * 2) * 16 + n);
      checked.set(at, checked.reference.out[at] + 0.8 * before.bound);
    }
  }
  const Accuracy accuracy = checked.check();
  EXPECT_LE(accuracy.error, accuracy.bound);
  EXPECT_FALSE(accuracy.passed);
  EXPECT_GT(accuracy.rms_error, accuracy.rms_bound);
  EXPECT_NE(accuracy.detail.find("RMS"), std::string::npos) << accuracy.detail;
}

TEST(Accuracy, NanMustMeetNan) {
  Checked checked(DType::kF32);
  const size_t at = 4000;
  checked.set(at, kNan);
  EXPECT_FALSE(checked.check().passed);
  EXPECT_TRUE(std::isinf(checked.check().error));
  checked.reference.out[at] = kNan;
  EXPECT_TRUE(checked.check().passed);
  checked.set(at, 0.0);
  EXPECT_FALSE(checked.check().passed);
}

TEST(Accuracy, LseWithinItsBound) {
  Checked checked(DType::kBF16);
  EXPECT_TRUE(checked.check_lse_now().passed) << checked.check_lse_now().detail;
  const size_t at = 3 * 200 + 150;
  checked.lse[at] += 3e-4f;
  EXPECT_FALSE(checked.check_lse_now().passed);
  EXPECT_NE(checked.check_lse_now().detail.find("(b=1, h=1, m=150)"), std::string::npos);
}

TEST(Accuracy, AnEmptyRowIsMinusInfinity) {
  Checked checked(DType::kBF16);
  ASSERT_TRUE(std::isinf(checked.reference.lse[0]));
  checked.lse[0] = -1e30f;
  EXPECT_FALSE(checked.check_lse_now().passed);
}

// Gradients of a small case as the oracle has them, rounded, to spoil.
struct CheckedGradients {
  CaseTensors tensors;
  BackwardReference reference;
  std::vector<float> dq, dk, dv, dsink;

  static Case make() {
    Case c;
    c.desc.dtype = DType::kBF16;
    c.desc.grad_dtype = DType::kF32;
    c.desc.batch = 1;
    c.desc.heads_q = 2;
    c.desc.heads_kv = 1;
    c.desc.seqlen_q = 300;
    c.desc.seqlen_k = 40;
    c.desc.head_dim = 8;
    c.desc.has_sink = true;
    return c;
  }
  CheckedGradients()
      : tensors(make()),
        reference(reference_backward(tensors.problem(), tensors.backward_args(), 1)),
        dq(reference.truth.dq.begin(), reference.truth.dq.end()),
        dk(reference.truth.dk.begin(), reference.truth.dk.end()),
        dv(reference.truth.dv.begin(), reference.truth.dv.end()),
        dsink(reference.truth.dsink.begin(), reference.truth.dsink.end()) {}

  BackwardAccuracy check() {
    BackwardArgs args = tensors.backward_args();
    args.dq = dq.data();
    args.dk = dk.data();
    args.dv = dv.data();
    args.dsink = dsink.data();
    return check_backward(tensors.problem(), args, reference);
  }
};

TEST(Accuracy, GradientsAreCheckedEach) {
  CheckedGradients checked;
  EXPECT_TRUE(checked.check().passed()) << checked.check().detail();
  const auto expect_noticed = [&](std::vector<float>& values, size_t at, const std::string& words) {
    const float kept = values[at];
    for (const float wrong : {kept + 2, std::numeric_limits<float>::quiet_NaN()}) {
      values[at] = wrong;
      EXPECT_FALSE(checked.check().passed());
      EXPECT_NE(checked.check().detail().find(words), std::string::npos)
          << checked.check().detail();
    }
    values[at] = kept;
  };
  expect_noticed(checked.dq, (150 * 2 + 1) * 8 + 3,
                 "dq: largest error: element 2411 (b=0, h=1, m=150, n=3)");
  expect_noticed(checked.dk, 17 * 8 + 5, "dk: largest error: element 141 (b=0, h=0, n=17, d=5)");
  expect_noticed(checked.dv, 0, "dv: largest error");
  expect_noticed(checked.dsink, 1, "dsink: element 1");
}

TEST(Accuracy, AnAverageOverRowsOfQueriesIsBound) {
  CheckedGradients checked;
  // Each element within the bound of the largest, all of one block of rows together not.
  const double bound = checked.check().dq.bound;
  for (int64_t i = 128 * 16; i < 256 * 16; ++i) checked.dq[i] += static_cast<float>(0.9 * bound);
  const BackwardAccuracy accuracy = checked.check();
  EXPECT_FALSE(accuracy.dq.passed);
  EXPECT_NE(accuracy.dq.detail.find("RMS"), std::string::npos) << accuracy.dq.detail;
}

}  // namespace
}  // namespace fa4::internal
