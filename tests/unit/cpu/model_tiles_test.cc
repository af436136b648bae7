// The scalar model of the tile unit against its definition.
#include "cpu/isa/model_tiles.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/dtype.h"

namespace fa4::internal {
namespace {

TEST(ModelTiles, MultiplyAddsThirtyTwoByThirtyTwo) {
  std::vector<uint16_t> a(32 * 32), b(2 * 16 * 16 * 2);
  std::vector<float> c(32 * 40, 1.0f);
  const auto a_at = [&](int m, int k) -> uint16_t& { return a[m * 32 + k]; };
  const auto b_at = [&](int k, int n) -> uint16_t& {
    return b[((n / 16 * 16 + k / 2) * 16 + n % 16) * 2 + k % 2];
  };
  for (int m = 0; m < 32; ++m) {
    for (int k = 0; k < 32; ++k) {
      a_at(m, k) = float_to_bf16(static_cast<float>((m * 3 + k) % 9) - 4.0f);
      b_at(k, m) = float_to_bf16(static_cast<float>((m * 5 + k * 7) % 11) * 0.5f);
    }
  }
  ModelTiles tiles;
  tiles.load_sums(c.data(), 40 * 4);
  const auto* units_a = reinterpret_cast<const uint32_t*>(a.data());
  const auto* units_b = reinterpret_cast<const uint32_t*>(b.data());
  int between = 0;

  tiles.multiply(units_a, units_b, 16 * 16, [&] { ++between; });
  EXPECT_EQ(between, 4);
  tiles.store_sums(c.data(), 40 * 4);
  for (int m = 0; m < 32; ++m) {
    for (int n = 0; n < 40; ++n) {
      float expected = 1.0f;
      for (int k = 0; k < 32 && n < 32; ++k) {
        expected += bf16_to_float(a_at(m, k)) * bf16_to_float(b_at(k, n));
      }
      EXPECT_EQ(c[m * 40 + n], expected) << m << ", " << n;
    }
  }
  tiles.zero_sums();
  tiles.store_sums(c.data(), 40 * 4);
  EXPECT_EQ(c[31 * 40 + 31], 0.0f);
  EXPECT_EQ(c[32], 1.0f);
}

}  // namespace
}  // namespace fa4::internal
