// What a mask hides changes no bit, finite or not; what lies past a sequence's end neither.
#include <cmath>
#include <limits>

#include "cpu_run.h"

namespace fa4::internal {
namespace {

class CpuHiddenValues : public CpuPathTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuHiddenValues, testing::ValuesIn(kAllPaths), path_name);

constexpr int64_t kSeqlen = 150;
constexpr int64_t kHeadDim = 24;

// Dense tensors that a test may write into.
struct Tensors {
  explicit Tensors(DType dtype, MaskSpec window, bool causal) {
    ProblemDesc desc;
    desc.dtype = dtype;
    desc.batch = 1;
    desc.seqlen_q = desc.seqlen_k = kSeqlen;
    desc.heads_q = 2;
    desc.heads_kv = 1;
    desc.head_dim = desc.head_dim_v = kHeadDim;
    desc.window = window;
    desc.causal = causal;
    problem = AttentionProblem::make(desc);
    uint32_t state = 12345;
    for (auto* data : {&q, &k, &v}) {
      const int64_t count = kSeqlen * kHeadDim * (data == &q ? 2 : 1);
      data->resize(static_cast<size_t>(count * size_of(dtype)));
      for (int64_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        store_from_float(dtype, data->data(), i, static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
      }
    }
  }
  ForwardArgs args() const {
    ForwardArgs a;
    a.q = q.data();
    a.k = k.data();
    a.v = v.data();
    return a;
  }
  void set_key(int64_t n, float value) {
    for (int64_t d = 0; d < kHeadDim; ++d) {
      store_from_float(problem.dtype, k.data(), n * kHeadDim + d, value);
      store_from_float(problem.dtype, v.data(), n * kHeadDim + d, value);
    }
  }

  AttentionProblem problem;
  std::vector<unsigned char> q, k, v;
};

bool row_is_same(const Tensors& t, const CpuResult& a, const CpuResult& b, int64_t i, int64_t h) {
  const size_t bytes = static_cast<size_t>(kHeadDim * size_of(t.problem.dtype));
  const size_t at = static_cast<size_t>(i * 2 + h) * bytes;
  const size_t lse = static_cast<size_t>(h * kSeqlen + i);
  return std::memcmp(a.out.data() + at, b.out.data() + at, bytes) == 0 &&
         std::memcmp(&a.lse[lse], &b.lse[lse], sizeof(float)) == 0;
}

// Key `n` becomes `value`: rows that do not see it keep every bit; returns how many do see it.
int check_hidden_key(Tensors t, const CpuResult& before, CpuIsa isa, int64_t n, float value) {
  t.set_key(n, value);
  const CpuResult after = run_cpu(t.problem, t.args(), isa);
  int seeing = 0;
  for (int64_t i = 0; i < kSeqlen; ++i) {
    const KeyRange range = visible_keys(i, kSeqlen, kSeqlen, t.problem.mask);
    const bool sees = n >= range.begin && n < range.end;
    seeing += sees;
    for (int64_t h = 0; h < 2; ++h) {
      const bool same = row_is_same(t, before, after, i, h);
      EXPECT_EQ(same, !sees) << name_of(t.problem.dtype) << " row " << i << ", head " << h
                             << ", key " << n << " is " << value;
      const int64_t at = (i * 2 + h) * kHeadDim;
      if (sees && value != value) {
        EXPECT_TRUE(std::isnan(load_as_float(t.problem.dtype, after.out.data(), at)));
        EXPECT_TRUE(std::isnan(after.lse[static_cast<size_t>(h * kSeqlen + i)]));
      }
    }
  }
  return seeing;
}

TEST_P(CpuHiddenValues, ReachOnlyRowsThatSeeThem) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (DType dtype : dtypes()) {
    for (bool causal : {false, true}) {
      const Tensors t(dtype, causal ? MaskSpec{} : MaskSpec{9, 4}, causal);
      const CpuResult before = run_cpu(t.problem, t.args(), GetParam());
      for (int64_t n : {0, 63, 64, 97, 149}) {
        for (float value : {100.0f, -3.0f, kNan, kInfinity, -kInfinity}) {
          EXPECT_GT(check_hidden_key(t, before, GetParam(), n, value), 0);
        }
      }
    }
  }
}

TEST_P(CpuHiddenValues, RowsPastTheUsedKeysMayHoldAnything) {
  for (DType dtype : dtypes()) {
    Tensors t(dtype, {}, false);
    ProblemDesc desc = t.problem;
    desc.has_seqused_k = true;
    const AttentionProblem problem = AttentionProblem::make(desc);
    ForwardArgs args = t.args();
    const int32_t used = 70;
    args.seqused_k = &used;
    const CpuResult before = run_cpu(problem, args, GetParam());
    for (int64_t n = used; n < kSeqlen; ++n) t.set_key(n, std::numeric_limits<float>::quiet_NaN());
    EXPECT_TRUE(before == run_cpu(problem, args, GetParam())) << name_of(dtype);
  }
}

}  // namespace
}  // namespace fa4::internal
