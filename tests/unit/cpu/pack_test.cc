#include "cpu/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace fa4::internal {
namespace {

AttentionProblem problem_of(DType dtype, int64_t keys, int64_t dim) {
  ProblemDesc desc;
  desc.dtype = dtype;
  desc.batch = desc.heads_q = desc.heads_kv = 1;
  desc.seqlen_q = desc.seqlen_k = keys;
  desc.head_dim = desc.head_dim_v = dim;
  return AttentionProblem::make(desc);
}

constexpr CpuPacking kPairs{16, 2, 32, 32, 0};
constexpr CpuPacking kFloats{8, 1, 1, 8, 0};
constexpr int64_t kDim = 24;
constexpr int kKeys = 21;

struct Data {
  explicit Data(DType dtype) : problem(problem_of(dtype, kKeys, kDim)) {
    bytes.resize(static_cast<size_t>(kKeys * kDim * size_of(dtype)));
    for (int64_t i = 0; i < kKeys * kDim; ++i) {
      store_from_float(dtype, bytes.data(), i, static_cast<float>(i % 251) - 100.0f);
    }
    args.k = args.v = bytes.data();
  }
  BlockSource source(const TensorRows& rows, int64_t padded) const {
    return {problem.dtype, bytes.data(), rows, 0, kKeys, 32, kDim, padded};
  }
  float at(int64_t n, int64_t d) const {
    return n < kKeys && d < kDim ? load_as_float(problem.dtype, bytes.data(), n * kDim + d) : 0.0f;
  }
  AttentionProblem problem;
  ForwardArgs args;
  std::vector<unsigned char> bytes;
};

TEST(Pack, KeysAsPairsAndAsFloats) {
  const Data data(DType::kBF16);
  const TensorRows rows(data.problem, data.args, sequence_view(data.problem, data.args, 0), 0, 0,
                        false);
  std::vector<uint16_t> pairs(32 * 32, 0xffff);
  pack_keys(data.source(rows, 32), kPairs, pairs.data());
  std::vector<float> floats(32 * kDim, NAN);
  pack_keys(data.source(rows, kDim), kFloats, floats.data());
  for (int n = 0; n < 32; ++n) {
    for (int d = 0; d < 32; ++d) {
      EXPECT_EQ(bf16_to_float(pairs[((n / 16 * 16 + d / 2) * 16 + n % 16) * 2 + d % 2]),
                data.at(n, d));
      if (d < kDim) {
        EXPECT_EQ(floats[(n / 8 * kDim + d) * 8 + n % 8], data.at(n, d));
      }
    }
  }
}

TEST(Pack, ValuesAsPairsAndAsFloats) {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Data data(dtype);
    const TensorRows rows(data.problem, data.args, sequence_view(data.problem, data.args, 0), 0, 0,
                          true);
    std::vector<float> floats(32 * kDim, NAN);
    EXPECT_FALSE(pack_values(data.source(rows, kDim), kFloats, floats.data()));
    for (int n = 0; n < 32; ++n) {
      for (int d = 0; d < kDim; ++d) EXPECT_EQ(floats[(d / 8 * 32 + n) * 8 + d % 8], data.at(n, d));
    }
    if (dtype != DType::kBF16) continue;
    std::vector<uint16_t> pairs(32 * 32, 0xffff);
    EXPECT_FALSE(pack_values(data.source(rows, 32), kPairs, pairs.data()));
    for (int n = 0; n < 32; ++n) {
      for (int d = 0; d < 32; ++d) {
        EXPECT_EQ(bf16_to_float(pairs[((d / 16 * 16 + n / 2) * 16 + d % 16) * 2 + n % 2]),
                  data.at(n, d));
      }
    }
  }
}

TEST(Pack, NonfiniteValuesAreReportedAndCleared) {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (float value : {std::numeric_limits<float>::infinity(), -HUGE_VALF, NAN}) {
      Data data(dtype);
      store_from_float(dtype, data.bytes.data(), 20 * kDim + 3, value);
      const TensorRows rows(data.problem, data.args, sequence_view(data.problem, data.args, 0), 0,
                            0, true);
      std::vector<float> floats(32 * kDim, NAN);
      EXPECT_TRUE(pack_values(data.source(rows, kDim), kFloats, floats.data()));
      EXPECT_EQ(floats[20 * 8 + 3], 0.0f);
    }
  }
}

// Every f16 bit pattern: the branch-free conversion is the exact one.
TEST(Pack, EveryHalfBecomesItsFloat) {
  for (uint32_t first = 0; first < 0x10000; first += 256) {
    std::vector<uint16_t> halves(256);
    for (uint32_t i = 0; i < 256; ++i) halves[i] = static_cast<uint16_t>(first + i);
    std::vector<float> floats(256);
    pack_query(DType::kF16, halves.data(), 0, 256, 256, 1, 1.0f, floats.data());
    for (uint32_t i = 0; i < 256; ++i) {
      const float expected = f16_to_float(halves[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(floats[i]));
      } else {
        EXPECT_EQ(std::memcmp(&floats[i], &expected, 4), 0) << halves[i];
      }
    }
  }
}

TEST(Pack, SignOfTheScaleGoesIntoTheQuery) {
  const uint16_t q[8] = {float_to_bf16(2.0f), float_to_bf16(-3.0f), 0x7fc0, 0x7f80, 0, 0, 0, 0};
  uint16_t packed[8];
  pack_query(DType::kBF16, q, 0, 8, 8, 2, -1.0f, packed);
  EXPECT_EQ(bf16_to_float(packed[0]), -2.0f);
  EXPECT_EQ(bf16_to_float(packed[1]), 3.0f);
  pack_query(DType::kBF16, q, 0, 8, 8, 2, 0.0f, packed);
  EXPECT_EQ(bf16_to_float(packed[1]), 0.0f);
  EXPECT_TRUE(std::isnan(bf16_to_float(packed[2])));
  EXPECT_TRUE(std::isnan(bf16_to_float(packed[3])));
}

}  // namespace
}  // namespace fa4::internal
