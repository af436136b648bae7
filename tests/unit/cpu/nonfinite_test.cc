// What a row sees reaches it: NaN and infinity in q, k and v, also through the polynomial.
#include <cmath>
#include <limits>

#include "cpu_run.h"

namespace fa4::internal {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CpuNonfinite : public CpuPathTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuNonfinite, testing::ValuesIn(kAllPaths), path_name);

constexpr int64_t kQueries = 9, kKeys = 140, kDim = 16;

struct Tensors {
  explicit Tensors(DType dtype) {
    ProblemDesc desc;
    desc.dtype = dtype;
    desc.batch = desc.heads_q = desc.heads_kv = 1;
    desc.seqlen_q = kQueries;
    desc.seqlen_k = kKeys;
    desc.head_dim = desc.head_dim_v = kDim;
    problem = AttentionProblem::make(desc);
    q.resize(static_cast<size_t>(kQueries * kDim * size_of(dtype)));
    k.resize(static_cast<size_t>(kKeys * kDim * size_of(dtype)));
    v = k;
    for (int64_t i = 0; i < kQueries * kDim; ++i)
      set(q, i, 0.25f * static_cast<float>(i % 5) - 0.4f);
    for (int64_t i = 0; i < kKeys * kDim; ++i) {
      set(k, i, 0.125f * static_cast<float>(i % 11) - 0.5f);
      set(v, i, 0.5f * static_cast<float>(i % 7) - 1.0f);
    }
  }
  void set(std::vector<unsigned char>& data, int64_t i, float value) {
    store_from_float(problem.dtype, data.data(), i, value);
  }
  CpuResult run(CpuIsa isa) const {
    ForwardArgs args;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    return run_cpu(problem, args, isa);
  }
  float out(const CpuResult& r, int64_t i, int64_t d) const {
    return load_as_float(problem.dtype, r.out.data(), i * kDim + d);
  }

  AttentionProblem problem;
  std::vector<unsigned char> q, k, v;
};

TEST_P(CpuNonfinite, NanInAQueryFillsItsRowOnly) {
  for (DType dtype : dtypes()) {
    Tensors t(dtype);
    t.set(t.q, 3 * kDim + 5, kNan);
    const CpuResult r = t.run(GetParam());
    for (int64_t i = 0; i < kQueries; ++i) {
      EXPECT_EQ(std::isnan(r.lse[i]), i == 3);
      for (int64_t d = 0; d < kDim; ++d) EXPECT_EQ(std::isnan(t.out(r, i, d)), i == 3);
    }
  }
}

TEST_P(CpuNonfinite, NanInAKeyFillsEveryRow) {
  for (DType dtype : dtypes()) {
    for (int64_t n : {0, 17, 64, 139}) {
      Tensors t(dtype);
      t.set(t.k, n * kDim, kNan);
      const CpuResult r = t.run(GetParam());
      for (int64_t i = 0; i < kQueries; ++i) {
        EXPECT_TRUE(std::isnan(r.lse[i]));
        for (int64_t d = 0; d < kDim; ++d) EXPECT_TRUE(std::isnan(t.out(r, i, d)));
      }
    }
  }
}

// Every payload and sign of a float NaN, through the exponent's integer arithmetic.
TEST_P(CpuNonfinite, NanPayloadsAreNotLost) {
  if (!isa_supports(GetParam(), DType::kF32)) GTEST_SKIP() << "no f32 on this path";
  for (uint32_t bits : {0x7fc00001u, 0x7fc001ffu, 0x7fffffffu, 0xffc00081u, 0xffffffffu}) {
    Tensors t(DType::kF32);
    std::memcpy(t.k.data() + 20 * kDim * 4, &bits, 4);
    const CpuResult r = t.run(GetParam());
    for (int64_t i = 0; i < kQueries; ++i) EXPECT_TRUE(std::isnan(t.out(r, i, 0))) << bits;
  }
}

TEST_P(CpuNonfinite, NonfiniteValuesStayInTheirColumn) {
  for (DType dtype : dtypes()) {
    for (float value : {kNan, kInfinity, -kInfinity}) {
      Tensors t(dtype);
      t.set(t.v, 75 * kDim + 4, value);
      const CpuResult r = t.run(GetParam());
      for (int64_t i = 0; i < kQueries; ++i) {
        EXPECT_TRUE(std::isfinite(r.lse[i]));
        for (int64_t d = 0; d < kDim; ++d) {
          const float out = t.out(r, i, d);
          if (d != 4) {
            EXPECT_TRUE(std::isfinite(out));
          } else if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(out));
          } else {
            EXPECT_EQ(out, value);
          }
        }
      }
    }
  }
}

TEST_P(CpuNonfinite, ScoreOfMinusInfinityWeighsNothing) {
  for (DType dtype : dtypes()) {
    Tensors t(dtype);
    for (int64_t i = 0; i < kQueries; ++i) t.set(t.q, i * kDim, 1.0f);
    for (int64_t n = 0; n < kKeys; ++n) {
      if (n != 33) t.set(t.k, n * kDim, -kInfinity);
    }
    const CpuResult r = t.run(GetParam());
    for (int64_t i = 0; i < kQueries; ++i) {
      EXPECT_TRUE(std::isfinite(r.lse[i]));
      for (int64_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(t.out(r, i, d), load_as_float(dtype, t.v.data(), 33 * kDim + d), 1e-2);
      }
    }
  }
}

TEST_P(CpuNonfinite, NothingButMinusInfinityIsNan) {
  for (DType dtype : dtypes()) {
    Tensors t(dtype);
    for (int64_t i = 0; i < kQueries; ++i) t.set(t.q, i * kDim, 1.0f);
    for (int64_t n = 0; n < kKeys; ++n) t.set(t.k, n * kDim, -kInfinity);
    const CpuResult r = t.run(GetParam());
    for (int64_t i = 0; i < kQueries; ++i) {
      EXPECT_TRUE(std::isnan(r.lse[i]));
      EXPECT_TRUE(std::isnan(t.out(r, i, 0)));
    }
  }
}

TEST_P(CpuNonfinite, ScoreOfInfinityIsNan) {
  for (DType dtype : dtypes()) {
    Tensors t(dtype);
    for (int64_t i = 0; i < kQueries; ++i) t.set(t.q, i * kDim, 1.0f);
    t.set(t.k, 100 * kDim, kInfinity);
    const CpuResult r = t.run(GetParam());
    for (int64_t i = 0; i < kQueries; ++i) EXPECT_TRUE(std::isnan(t.out(r, i, 0)));
  }
}

}  // namespace
}  // namespace fa4::internal
