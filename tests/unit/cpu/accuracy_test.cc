// Every path against double precision: each option, at sizes around the tiles' edges.
#include <fmt/format.h>

#include <cmath>

#include "cpu_run.h"

namespace fa4::internal {
namespace {

class CpuAccuracy : public CpuPathTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuAccuracy, testing::ValuesIn(kAllPaths), path_name);

void check_case(const Case& c, CpuIsa isa) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  SCOPED_TRACE(fmt::format(
      "{} b{} hq{} hk{} sq{} sk{} d{} dv{} causal {} window {},{} cap {} sink {} "
      "layout {},{} page {}",
      name_of(p.dtype), p.batch, p.heads_q, p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim,
      p.head_dim_v, p.causal, p.window.window_left, p.window.window_right, p.softcap, p.has_sink,
      static_cast<int>(p.layout_q), static_cast<int>(p.layout_kv), p.page_size));
  const ForwardArgs args = tensors.args();
  const CpuResult result = run_cpu(p, args, isa);
  expect_accurate(p, args, reference_forward(p, args, 2), result);
}

Case small_case(DType dtype, int64_t seqlen_q, int64_t seqlen_k) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 2;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = seqlen_k;
  c.desc.heads_q = c.desc.heads_kv = 2;
  c.desc.head_dim = c.desc.head_dim_v = 64;
  c.seed = static_cast<uint64_t>(seqlen_q * 1000 + seqlen_k);
  return c;
}

TEST_P(CpuAccuracy, EverySequenceLengthAroundTheTiles) {
  for (DType dtype : dtypes()) {
    for (int64_t seqlen : {1, 2, 5, 6, 7, 15, 17, 31, 33, 63, 65, 127, 129, 193, 257, 300}) {
      Case c = small_case(dtype, seqlen, seqlen + seqlen % 3 - 1);
      c.desc.causal = seqlen % 2 == 1;
      check_case(c, GetParam());
    }
  }
}

TEST_P(CpuAccuracy, EveryHeadDim) {
  for (DType dtype : dtypes()) {
    for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
      Case c = small_case(dtype, 37, 70);
      c.desc.head_dim = head_dim;
      c.desc.head_dim_v = head_dim % 24 == 0 ? 264 - head_dim : head_dim;
      check_case(c, GetParam());
    }
  }
}

// f32 on request is what would have been rounded to the inputs' type.
TEST_P(CpuAccuracy, OutInF32IsOutBeforeItsRounding) {
  for (DType dtype : dtypes()) {
    Case c = small_case(dtype, 70, 150);
    c.desc.causal = true;
    const CaseTensors rounded(c);
    c.desc.out_dtype = DType::kF32;
    const CaseTensors tensors(c);
    check_case(c, GetParam());
    const CpuResult wanted = run_cpu(rounded.problem(), rounded.args(), GetParam());
    const CpuResult got = run_cpu(tensors.problem(), tensors.args(), GetParam());
    EXPECT_EQ(got.lse, wanted.lse);
    std::vector<unsigned char> again(wanted.out.size());
    for (int64_t i = 0; i < tensors.problem().out_elements(); ++i) {
      store_from_float(dtype, again.data(), i, load_as_float(DType::kF32, got.out.data(), i));
    }
    EXPECT_EQ(again, wanted.out) << name_of(dtype);
  }
}

TEST_P(CpuAccuracy, GroupsOfHeads) {
  for (DType dtype : dtypes()) {
    for (int64_t heads_kv : {1, 2, 3, 6}) {
      for (int64_t seqlen_q : {1, 3, 40}) {
        Case c = small_case(dtype, seqlen_q, 90);
        c.desc.heads_q = 6;
        c.desc.heads_kv = heads_kv;
        c.desc.causal = true;
        check_case(c, GetParam());
      }
    }
  }
}

TEST_P(CpuAccuracy, EveryMask) {
  const MaskSpec windows[] = {{-1, -1}, {0, 0}, {5, 0}, {0, 7}, {40, 3}, {-1, 20}, {64, -1}};
  for (DType dtype : dtypes()) {
    for (const MaskSpec& window : windows) {
      for (bool causal : {false, true}) {
        for (int64_t seqlen_k : {20, 100, 170}) {
          Case c = small_case(dtype, 100, seqlen_k);
          c.desc.window = window;
          c.desc.causal = causal;
          check_case(c, GetParam());
        }
      }
    }
  }
}

TEST_P(CpuAccuracy, SoftcapSinkAndScale) {
  for (DType dtype : dtypes()) {
    for (float softcap : {0.0f, 1.0f, 30.0f}) {
      for (bool sink : {false, true}) {
        for (float scale : {0.2f, 1.5f, -0.3f, 0.0f}) {
          Case c = small_case(dtype, 50, 77);
          c.desc.softcap = softcap;
          c.desc.has_sink = sink;
          c.desc.softmax_scale = scale;
          check_case(c, GetParam());
        }
      }
    }
  }
}

// f32's bound allows a capped score about one rounding of a float. With a tanh of floats each of
// these, two of them of few rows, was beyond it: 1.17, 1.08, 1.97 and 1.22 of it.
TEST_P(CpuAccuracy, SoftcapOfF32) {
  if (!isa_supports(GetParam(), DType::kF32)) GTEST_SKIP() << "no f32";
  const struct {
    int64_t seqlen_q;
    float softcap, scale;
    uint64_t seed;
  } kCases[] = {{40, 20, 0.5f, 6}, {24, 30, 0.7f, 27}, {4, 39, 0.9f, 289}, {12, 20, 0.9f, 857}};
  for (const auto& [seqlen_q, softcap, scale, seed] : kCases) {
    Case c = small_case(DType::kF32, seqlen_q, 50);
    c.desc.batch = c.desc.heads_q = c.desc.heads_kv = 1;
    c.desc.softcap = softcap;
    c.desc.softmax_scale = scale;
    c.seed = seed;
    check_case(c, GetParam());
  }
}

// Equal scores and values that do not depend on the key: each key rounds a float total the same
// way. With plain totals the vector paths came to 5.8 times f32's bound, one row in one part to 25.
TEST_P(CpuAccuracy, ManyKeysOfF32) {
  if (!isa_supports(GetParam(), DType::kF32)) GTEST_SKIP() << "no f32";
  constexpr int64_t kDim = 16;
  const struct {
    int64_t seqlen_q, seqlen_k, num_splits, split_keys;
  } kCases[] = {{20, 8192, 0, 0}, {20, 32768, 0, 128}, {1, 32768, 1, 0}, {4, 32768, 0, 128}};
  for (const auto& [seqlen_q, seqlen_k, num_splits, split_keys] : kCases) {
    ProblemDesc d;
    d.dtype = DType::kF32;
    d.batch = d.heads_q = d.heads_kv = 1;
    d.seqlen_q = seqlen_q;
    d.seqlen_k = seqlen_k;
    d.head_dim = d.head_dim_v = kDim;
    d.num_splits = num_splits;
    d.split_keys = split_keys;
    const std::vector<float> q(static_cast<size_t>(seqlen_q * kDim), 1.0f);
    const std::vector<float> k(static_cast<size_t>(seqlen_k * kDim), 0.0f);
    std::vector<float> v(k.size());
    for (size_t i = 0; i < v.size(); ++i) v[i] = 0.52f + 0.0297f * static_cast<float>(i % kDim);
    ForwardArgs args;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    const CpuResult result = run_cpu(AttentionProblem::make(d), args, GetParam());
    const float bound = 0x1p-21f * v[kDim - 1];
    for (int64_t i = 0; i < seqlen_q * kDim; ++i) {
      const float out = load_as_float(DType::kF32, result.out.data(), i);
      ASSERT_LE(std::fabs(out - v[static_cast<size_t>(i % kDim)]), bound)
          << seqlen_q << " x " << seqlen_k << ", parts of " << split_keys << ", element " << i;
    }
    const float lse = std::log(static_cast<float>(seqlen_k));
    for (const float x : result.lse) ASSERT_NEAR(x, lse, 1e-5f);
  }
}

TEST_P(CpuAccuracy, PackedSequences) {
  for (DType dtype : dtypes()) {
    for (bool causal : {false, true}) {
      Case c = small_case(dtype, 70, 140);
      c.desc.layout_q = c.desc.layout_kv = Layout::kPacked;
      c.desc.batch = 5;
      c.lengths_q = {1, 70, 0, 33, 7};
      c.lengths_k = {9, 61, 5, 0, 140};
      c.desc.total_q = 111;
      c.desc.total_k = 215;
      c.desc.causal = causal;
      check_case(c, GetParam());
    }
  }
}

TEST_P(CpuAccuracy, PagesOfAnySize) {
  for (DType dtype : dtypes()) {
    for (int64_t page_size : {1, 3, 16, 50, 128}) {
      Case c = small_case(dtype, 13, 150);
      c.desc.layout_kv = Layout::kPaged;
      c.desc.page_size = page_size;
      c.desc.pages_per_seq = (150 + page_size - 1) / page_size;
      c.desc.seqlen_k = c.desc.pages_per_seq * page_size;
      c.desc.num_pages = 2 * c.desc.pages_per_seq + 1;
      c.desc.has_seqused_k = true;
      c.seqused_k = {149, 77};
      c.desc.causal = true;
      check_case(c, GetParam());
    }
  }
}

TEST_P(CpuAccuracy, UsedPartOfDenseKeys) {
  for (DType dtype : dtypes()) {
    Case c = small_case(dtype, 40, 120);
    c.desc.has_seqused_k = true;
    c.seqused_k = {0, 101};
    check_case(c, GetParam());
  }
}

TEST_P(CpuAccuracy, ScoresFarApart) {
  for (DType dtype : dtypes()) {
    Case c = small_case(dtype, 150, 150);
    c.amplitude = 8.0f;
    c.desc.causal = true;
    check_case(c, GetParam());
  }
}

TEST_P(CpuAccuracy, RandomCases) {
  constexpr int64_t kPairs = 160000;  // of queries and keys: a second or two a path
  int count = 0;
  for (const Case& c : make_suite(Suite::kQuick, 20)) {
    if (!isa_supports(GetParam(), c.desc.dtype)) continue;
    if (c.desc.seqlen_q * c.desc.seqlen_k * c.desc.batch * c.desc.heads_q > kPairs) continue;
    check_case(c, GetParam());
    ++count;
  }
  EXPECT_GE(count, 10);
}

}  // namespace
}  // namespace fa4::internal
