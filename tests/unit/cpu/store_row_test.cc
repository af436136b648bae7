// Rows of sums as rows of tensors: the same bits on every path.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/device_spec.h"
#include "cpu/store_row.h"

namespace fa4::internal {
namespace {

constexpr int64_t kOffset = 3;
constexpr unsigned char kUntouched = 0xa5;

// Ties, subnormals of all three types, the largest numbers, and numbers of every size.
std::vector<float> sums_of(int64_t dim) {
  std::vector<float> sums = {0.0f,
                             -0.0f,
                             1.0f + 0x1p-8f,
                             1.0f + 3 * 0x1p-8f,
                             1.0f + 0x1p-11f,
                             -1.0f - 3 * 0x1p-11f,
                             0x1p-24f,
                             0x1.8p-25f,
                             0x1p-130f,
                             std::numeric_limits<float>::max(),
                             65519.0f,
                             65520.0f,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity()};
  uint32_t state = 1;
  while (static_cast<int64_t>(sums.size()) < dim) {
    state = state * 1664525u + 1013904223u;
    const float size = std::ldexp(1.0f, static_cast<int>(state >> 8 & 63) - 40);
    sums.push_back((static_cast<float>(state >> 9) * 0x1p-22f - 1.0f) * size);
  }
  sums.resize(static_cast<size_t>(dim));
  return sums;
}

std::vector<unsigned char> stored(CpuIsa isa, DType dtype, const std::vector<float>& sums,
                                  float factor) {
  const auto dim = static_cast<int64_t>(sums.size());
  std::vector<unsigned char> to(static_cast<size_t>((dim + 2 * kOffset) * size_of(dtype)),
                                kUntouched);
  store_row(isa, dtype, sums.data(), factor, dim, to.data(), kOffset);
  return to;
}

TEST(StoreRow, HasTheSameBitsWithAvx512) {
  if (!has_isa(host_cpu_spec().cpu, CpuIsa::kAvx512)) GTEST_SKIP() << "no AVX-512";
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t dim : {8, 16, 24, 72, 128, 256}) {
      for (float factor : {1.0f, 0.3f, -1.0f}) {
        const std::vector<float> sums = sums_of(dim);
        EXPECT_EQ(stored(CpuIsa::kAvx512, dtype, sums, factor),
                  stored(CpuIsa::kScalar, dtype, sums, factor))
            << name_of(dtype) << " " << dim << " " << factor;
      }
    }
  }
}

TEST(StoreRow, KeepsNan) {
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx512}) {
    if (!has_isa(host_cpu_spec().cpu, isa)) continue;
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (uint32_t bits : {0x7fc00000u, 0xffc00001u, 0x7fffffffu, 0xffffffffu}) {
        float nan;
        std::memcpy(&nan, &bits, sizeof nan);
        const auto to = stored(isa, dtype, std::vector<float>(24, nan), 1.0f);
        for (int64_t d = 0; d < 24; ++d) {
          EXPECT_TRUE(std::isnan(load_as_float(dtype, to.data(), kOffset + d)));
        }
      }
    }
  }
}

TEST(StoreRow, TouchesNothingElse) {
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx512}) {
    if (!has_isa(host_cpu_spec().cpu, isa)) continue;
    const auto to = stored(isa, DType::kBF16, std::vector<float>(24, 1.0f), 1.0f);
    for (size_t i = 0; i < 2 * kOffset; ++i) {
      EXPECT_EQ(to[i], kUntouched);
      EXPECT_EQ(to[to.size() - 1 - i], kUntouched);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
