// Keys cut into parts on a GPU: the oracle's answer, and bits that depend on nothing but a
// sequence's own keys and where they are cut.
#include <gtest/gtest.h>

#include <cstring>

#include "backends.h"
#include "table.h"

namespace fa4::internal {
namespace {

constexpr int64_t kLengths = 4;  // sequences of base_case

Case base_case(int64_t head_dim) {
  Case c;
  ProblemDesc& d = c.desc;
  d.batch = kLengths;
  d.heads_q = 6;
  d.heads_kv = 2;
  d.seqlen_q = 2;
  d.seqlen_k = 700;
  d.head_dim = head_dim;
  d.causal = true;
  d.has_seqused_k = true;
  d.split_keys = 128;
  c.seqused_k = {700, 0, 129, 384};
  c.seed = 77;
  return c;
}

// The GPUs here that cut keys.
std::vector<Backend> backends_of(const AttentionProblem& p) {
  std::vector<Backend> found = backends_that_take(p);
  std::erase_if(found, [](const Backend& backend) { return !backend.is_gpu(); });
  return found;
}

class Parts : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    if (backends_of(AttentionProblem::make(base_case(64).desc)).empty()) {
      GTEST_SKIP() << "no GPU here that cuts keys";
    }
  }
};

// Right, and of the same bits on any number of SMs, since the problem says where keys are cut: with
// few of them a CTA takes many parts one after another.
void expect_right(const Case& c) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const Reference reference = reference_forward(p, tensors.args(), 2);
  for (const Backend& backend : backends_of(p)) {
    SCOPED_TRACE(backend.name);
    const Result result = run_on(with_sms(backend, 3), p, tensors.args());
    EXPECT_NE(result.kernel.find("_parts"), std::string::npos) << result.kernel;
    expect_accurate(p, tensors.args(), reference, result);
    for (const int num_sms : {1, 132}) {
      const Result other = run_on(with_sms(backend, num_sms), p, tensors.args());
      EXPECT_TRUE(same_bits(other, result)) << num_sms << " SMs";
    }
  }
}

TEST_F(Parts, OfEveryHeadDim) {
  constexpr struct {
    int64_t head_dim, head_dim_v;
  } kDims[] = {{8, 8},     {64, 64},   {96, 96},   {72, 40},
               {128, 128}, {192, 128}, {192, 192}, {256, 256}};
  for (const auto& dims : kDims) {
    for (const int64_t page_size : {0, 1, 24, 64}) {
      SCOPED_TRACE(testing::Message() << dims.head_dim << ", pages of " << page_size);
      Case c = base_case(dims.head_dim);
      c.desc.head_dim_v = dims.head_dim_v;
      c.desc.dtype = page_size == 24 ? DType::kF16 : DType::kBF16;
      if (page_size > 0) put_in_pages(c, page_size);
      expect_right(c);
    }
  }
}

struct Variant {
  const char* name;
  std::function<void(Case&)> change;
};
const Variant kVariants[] = {
    {"no mask, all keys in use",
     [](Case& c) {
       c.desc.causal = c.desc.has_seqused_k = false;
       c.seqused_k.clear();
     }},
    {"window",
     [](Case& c) {
       c.desc.window = {200, 0};
     }},
    {"window of one part",
     [](Case& c) {
       c.desc.causal = false;
       c.desc.window = {3, 2};
     }},
    {"window behind the position",
     [](Case& c) {
       c.desc.causal = false;
       c.desc.window = {300, -90, 2};
     }},
    {"window that nobody sees anything in",
     [](Case& c) {
       c.desc.causal = false;
       c.desc.window = {-150, -250, 3};
       c.desc.split_keys = 4096;
     }},
    {"tiles that see no block of their part",
     [](Case& c) {
       c.desc.causal = false;
       c.desc.seqlen_q = 400;
       c.desc.heads_q = c.desc.heads_kv = 4;
       c.desc.window = {-300, -1, 1};
       c.desc.split_keys = 4096;
     }},
    {"softcap", [](Case& c) { c.desc.softcap = 9; }},
    {"negative scale", [](Case& c) { c.desc.softmax_scale = -0.1f; }},
    {"sink", [](Case& c) { c.desc.has_sink = true; }},
    {"wide scores", [](Case& c) { c.amplitude = 30; }},
    {"one head", [](Case& c) { c.desc.heads_q = c.desc.heads_kv = 1; }},
    {"128 heads", [](Case& c) { c.desc.heads_q = 128, c.desc.heads_kv = 1; }},
    {"queries in use",
     [](Case& c) {
       c.desc.has_seqused_q = true;
       c.seqused_q = {2, 1, 0, 1};
     }},
    {"tiles of rows that see different parts",
     [](Case& c) {
       c.desc.seqlen_q = 300;
       c.desc.heads_q = c.desc.heads_kv = 1;
       c.desc.window = {150, 0};
     }},
    {"more queries than keys",
     [](Case& c) {
       c.desc.seqlen_q = 400;
       c.desc.heads_kv = 6;
     }},
    {"packed queries",
     [](Case& c) {
       pack(c, {1, 2, 0, 40}, {700, 17, 300, 129});
       c.desc.has_seqused_k = false;
       c.seqused_k.clear();
     }},
    {"num_splits",
     [](Case& c) {
       c.desc.split_keys = 0;
       c.desc.num_splits = 3;
     }},
    {"out in f32",
     [](Case& c) {
       c.desc.out_dtype = DType::kF32;
       c.desc.split_keys = 0;
       c.desc.num_splits = 1;
     }},
    {"parts longer than the keys", [](Case& c) { c.desc.split_keys = 4096; }},
    {"40 sequences",
     [](Case& c) {
       c.desc.batch = 40;
       c.desc.seqlen_q = 1;
       c.desc.seqlen_k = 300;
       c.seqused_k.assign(40, 0);
       for (int b = 0; b < 40; b += 3) c.seqused_k[static_cast<size_t>(b)] = 7 * b;
     }},
};

TEST_F(Parts, UnderEveryOption) {
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    Case c = base_case(64);
    variant.change(c);
    expect_right(c);
  }
}

// The sequences of a batch one by one: what else is in it changes no bit.
void expect_same_alone(const Case& c) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  for (const Backend& backend : backends_of(p)) {
    SCOPED_TRACE(backend.name);
    const Result all = run_on(backend, p, tensors.args());
    for (int64_t b = 0; b < p.batch; ++b) {
      SCOPED_TRACE(b);
      ProblemDesc d = p;
      d.batch = 1;
      d.q = d.k = d.v = d.out = d.dout = d.dq = d.dk = d.dv = {};
      const AttentionProblem one = AttentionProblem::make(d);
      ForwardArgs args = tensors.args();
      args.q = static_cast<const char*>(args.q) + b * p.q.batch * size_of(p.dtype);
      args.k = static_cast<const char*>(args.k) + b * p.k.batch * size_of(p.dtype);
      args.v = static_cast<const char*>(args.v) + b * p.v.batch * size_of(p.dtype);
      args.seqused_k += b;
      const Result alone = run_on(backend, one, args);
      EXPECT_EQ(
          std::memcmp(alone.out.data(), all.out.data() + b * alone.out.size(), alone.out.size()),
          0);
      EXPECT_EQ(std::memcmp(alone.lse.data(), all.lse.data() + b * alone.lse.size(),
                            alone.lse.size() * sizeof(float)),
                0);
    }
  }
}

TEST_F(Parts, OfASequenceAloneAsInABatch) {
  Case c = base_case(64);
  c.desc.heads_q = c.desc.heads_kv;
  expect_same_alone(c);
}

// Rows enough for the second kernel to give each a warp, which it gives eight when one of the
// sequences is alone.
TEST_F(Parts, OfManyRowsAsOfFew) {
  Case c = base_case(64);
  c.desc.batch = 8;
  c.desc.heads_q = 128;
  c.desc.heads_kv = 2;
  c.desc.seqlen_q = 1;
  c.desc.seqlen_k = 1300;
  c.seqused_k = {1300, 0, 129, 1024, 1, 1025, 128, 1290};
  expect_same_alone(c);
  c.desc.dtype = DType::kF16;
  c.desc.head_dim = 192;
  expect_same_alone(c);
}

// Few rows of sequences whose lengths the plan does not know: each one's own keys are cut evenly,
// so that a plan for shorter ones gives the same bits.
TEST_F(Parts, AreEvenWhereLengthsDiffer) {
  Case c = base_case(128);
  c.desc.split_keys = 0;
  c.desc.seqlen_q = 1;
  c.desc.seqlen_k = 8192;
  c.seqused_k = {2000, 0, 129, 700};
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const Reference reference = reference_forward(p, tensors.args(), 2);
  for (const Backend& backend : backends_of(p)) {
    SCOPED_TRACE(backend.name);
    const Result result = run_on(backend, p, tensors.args());
    EXPECT_NE(result.kernel.find("_parts"), std::string::npos) << result.kernel;
    expect_accurate(p, tensors.args(), reference, result);
    ProblemDesc shorter = p;  // of the same tensors, by their strides
    shorter.seqlen_k = 2048;
    EXPECT_TRUE(
        same_bits(run_on(backend, AttentionProblem::make(shorter), tensors.args()), result));
  }
}

}  // namespace
}  // namespace fa4::internal
