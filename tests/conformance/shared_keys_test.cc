// Pairs of CTAs that load keys together on Hopper: the oracle's answer, and the bits of CTAs that
// load their own.
#include <gtest/gtest.h>

#include "backends.h"
#include "table.h"

namespace fa4::internal {
namespace {

constexpr const char* kPair = "_pair";

struct Shape {
  int64_t head_dim, head_dim_v, heads_q, heads_kv, seqlen_q, seqlen_k;
};
// Two tiles a head, or a group of them; the second is mostly not full.
constexpr Shape kShapes[] = {
    {64, 64, 3, 3, 200, 1300},  {40, 40, 4, 1, 96, 260},    {128, 128, 2, 2, 250, 2050},
    {192, 128, 2, 2, 130, 300}, {192, 192, 2, 1, 256, 200}, {256, 256, 3, 3, 129, 170},
};

Case case_of(const Shape& shape) {
  Case c;
  ProblemDesc& d = c.desc;
  d.batch = 2;
  d.heads_q = shape.heads_q;
  d.heads_kv = shape.heads_kv;
  d.seqlen_q = shape.seqlen_q;
  d.seqlen_k = shape.seqlen_k;
  d.head_dim = shape.head_dim;
  d.head_dim_v = shape.head_dim_v;
  d.num_splits = 1;
  c.seed = 41;
  return c;
}

// The same tensors, and an index tensor that says that all keys are in use: no CTA knows what
// another one sees.
Result run_apart(const Backend& backend, Case c) {
  c.desc.has_seqused_k = true;
  c.seqused_k.assign(static_cast<size_t>(c.desc.batch), static_cast<int32_t>(c.desc.seqlen_k));
  const CaseTensors tensors(c);
  return run_on(with_sms(backend, 132), tensors.problem(), tensors.args());
}

class SharedKeys : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (!IsSkipped() && tested_hoppers().empty()) GTEST_SKIP() << "no Hopper here";
  }
};

void expect_right(const CaseTensors& tensors, const Reference& reference, const Result& result) {
  EXPECT_NE(result.kernel.find(kPair), std::string::npos) << result.kernel;
  expect_accurate(tensors.problem(), tensors.args(), reference, result);
}

// One pair takes all tiles, one after the other; or each has at most one.
TEST_F(SharedKeys, AreRightAndHaveTheBitsOfKeysApart) {
  for (const Backend& backend : tested_hoppers()) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << backend.name << ", head_dim " << shape.head_dim);
      const Case c = case_of(shape);
      const CaseTensors tensors(c);
      const Reference reference = reference_forward(tensors.problem(), tensors.args(), 2);
      const Result apart = run_apart(backend, c);
      EXPECT_EQ(apart.kernel.find(kPair), std::string::npos) << apart.kernel;
      for (const int num_sms : {2, 132}) {
        const Result result = run_on(with_sms(backend, num_sms), tensors.problem(), tensors.args());
        expect_right(tensors, reference, result);
        EXPECT_TRUE(same_bits(result, apart)) << num_sms << " SMs";
      }
    }
  }
}

// 101 tiles: the last pair has a CTA whose tile lies behind the last query.
TEST_F(SharedKeys, OfACtaWithoutRows) {
  for (const Backend& backend : tested_hoppers()) {
    Case c = case_of({64, 64, 1, 1, 19300, 260});
    c.desc.batch = 1;
    const CaseTensors tensors(c);
    const Reference reference = reference_forward(tensors.problem(), tensors.args(), 2);
    expect_right(tensors, reference,
                 run_on(with_sms(backend, 132), tensors.problem(), tensors.args()));
  }
}

}  // namespace
}  // namespace fa4::internal
