// The arithmetic of tensor cores against a model in integers of its own, and against sums worked by
// hand.
#include "emulator/machine/mma_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace ptxemu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// value = mantissa * 2^(exponent - 10), |mantissa| < 2^11 for every 16-bit format and tf32.
struct Parts {
  int64_t mantissa;
  int exponent;
};

Parts parts_of(float value, int least_exponent, int fraction_bits) {
  if (value == 0) return {0, least_exponent};
  const int exponent = std::max(std::ilogb(value), least_exponent);
  return {static_cast<int64_t>(std::ldexp(value, fraction_bits - exponent)), exponent};
}

// The published model: terms truncated towards zero at `fraction` bits below the largest exponent
// of a non-zero term (the sum of the factors' exponents), never below 2^-126.
float model(const float* a, const float* b, int products, float c, int least, int c_least,
            int fraction) {
  struct Aligned {
    int64_t mantissa;
    int exponent, bits;
  };
  std::vector<Aligned> terms;
  bool nan = std::isnan(c), plus = c == kInfinity, minus = c == -kInfinity;
  for (int j = 0; j < products; ++j) {
    const float p = a[j] * b[j];
    const bool special = !std::isfinite(a[j]) || !std::isfinite(b[j]);
    nan |= special && std::isnan(p);
    plus |= special && p == kInfinity;
    minus |= special && p == -kInfinity;
    if (special) continue;
    const Parts x = parts_of(a[j], least, 10), y = parts_of(b[j], least, 10);
    terms.push_back({x.mantissa * y.mantissa, x.exponent + y.exponent, 20});
  }
  if (nan || (plus && minus)) return std::bit_cast<float>(0x7FFFFFFFu);
  if (plus) return kInfinity;
  if (minus) return -kInfinity;
  const Parts z = parts_of(c, c_least, 23);
  terms.push_back({z.mantissa, z.exponent, 23});
  int top = -126;
  for (const Aligned& t : terms) {
    if (t.mantissa != 0) top = std::max(top, t.exponent);
  }
  int64_t sum = 0;
  for (const Aligned& t : terms) {
    const int shift = fraction - t.bits - (top - t.exponent);
    const int64_t magnitude = std::abs(t.mantissa);
    const int64_t moved = shift >= 0 ? magnitude << shift : (shift < -62 ? 0 : magnitude >> -shift);
    sum += t.mantissa < 0 ? -moved : moved;
  }
  // Truncated to a float, one bit at a time.
  int64_t magnitude = std::abs(sum);
  int unit = top - fraction;
  while (magnitude >= (1 << 24) || (magnitude != 0 && unit < -149)) {
    magnitude >>= 1;
    ++unit;
  }
  const double value = std::ldexp(static_cast<double>(magnitude), unit);
  const float result = value >= 0x1p128 ? kInfinity : static_cast<float>(value);
  return sum < 0 ? -result : result;
}

std::vector<HostIsa> isas() {
  std::vector<HostIsa> found = {HostIsa::kBaseline};
  for (HostIsa isa : {HostIsa::kAvx2, HostIsa::kAvx512}) {
    if (host_isa() >= isa) found.push_back(isa);
  }
  return found;
}

// One panel of products, with everything that a kernel needs.
struct Case {
  int products, rows;
  std::vector<float> a, b, c, d;
  std::vector<int16_t> a_exponent, b_exponent;

  Case(int products_in, int rows_in)
      : products(products_in),
        rows(rows_in),
        a(static_cast<size_t>(products) * kPanelWidth),
        b(static_cast<size_t>(products * rows + 15) / 16 * 16),
        c(static_cast<size_t>(rows) * kPanelWidth),
        d(c.size()),
        a_exponent(a.size()),
        b_exponent(b.size()) {}

  MmaPanel panel(HostIsa isa, int least) {
    const MmaKernels& kernels = mma_kernels(isa);
    kernels.exponents(a.data(), a.size(), least, a_exponent.data());
    kernels.exponents(b.data(), b.size(), least, b_exponent.data());
    MmaPanel panel;
    panel.products = products;
    panel.rows = rows;
    panel.a = a.data();
    panel.a_exponent = a_exponent.data();
    panel.b = b.data();
    panel.b_exponent = b_exponent.data();
    for (int half = 0; half < 2; ++half) {
      panel.c[half] = c.data() + half * 16;
      panel.d[half] = d.data() + half * 16;
    }
    panel.stride = kPanelWidth;
    return panel;
  }
};

bool same(float x, float y) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y); }

// Data of one kind: what the exponents spread over, and how often zeros and specials occur.
struct Spread {
  const char* name;
  int low, high;
  double zeros, specials;
  bool cancels;
};

float draw(std::mt19937& random, const Spread& spread, int mantissa_bits) {
  std::uniform_real_distribution<double> unit(0, 1);
  const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
  if (unit(random) < spread.zeros) return sign * 0.0f;
  if (unit(random) < spread.specials) {
    return random() % 2 == 0 ? sign * kInfinity : std::numeric_limits<float>::quiet_NaN();
  }
  const int width = spread.high - spread.low + 1;
  const int exponent = spread.low + static_cast<int>(random() % static_cast<uint32_t>(width));
  const uint32_t mantissa = random() & ((1u << mantissa_bits) - 1);
  const double value = 1 + std::ldexp(mantissa, -mantissa_bits);
  // Subnormal bf16 values keep the bits that the format holds.
  const double scaled = std::ldexp(value, exponent);
  const double quantum = std::ldexp(1.0, std::max(exponent, -126) - mantissa_bits);
  return sign * static_cast<float>(std::trunc(scaled / quantum) * quantum);
}

void compare(const Spread& spread, int products, int mantissa_bits, int least, int fraction,
             HostIsa isa) {
  std::mt19937 random(static_cast<uint32_t>(products * 31 + fraction));
  for (int repeat = 0; repeat < 20; ++repeat) {
    Case work(products, 8);
    for (float& x : work.a) x = draw(random, spread, mantissa_bits);
    for (int i = 0; i < products * work.rows; ++i) {
      work.b[static_cast<size_t>(i)] = draw(random, spread, mantissa_bits);
    }
    for (float& x : work.c) x = draw(random, spread, 23);
    MmaPanel panel = work.panel(isa, least);
    panel.rules.fraction_bits = fraction;
    if (spread.cancels) {  // the addend undoes the sum but for a little
      mma_kernels(isa).exact(panel);
      for (size_t i = 0; i < work.c.size(); ++i) {
        const float rest = work.c[i] - work.d[i];
        work.c[i] = std::isfinite(rest) ? rest : work.c[i];
      }
    }
    mma_kernels(isa).hardware(panel);
    for (int row = 0; row < work.rows; ++row) {
      for (int i = 0; i < kPanelWidth; ++i) {
        std::vector<float> column(static_cast<size_t>(products));
        for (int j = 0; j < products; ++j) {
          column[static_cast<size_t>(j)] = work.a[static_cast<size_t>(j * kPanelWidth + i)];
        }
        const size_t at = static_cast<size_t>(row * kPanelWidth + i);
        const float want = model(column.data(), &work.b[static_cast<size_t>(row * products)],
                                 products, work.c[at], least, -126, fraction);
        ASSERT_TRUE(same(work.d[at], want))
            << spread.name << " isa " << static_cast<int>(isa) << " K " << products << " row "
            << row << " column " << i << ": " << std::hexfloat << work.d[at] << ", wanted " << want
            << ", addend " << work.c[at];
      }
    }
  }
}

constexpr Spread kSpreads[] = {
    {"near", -3, 3, 0, 0, false},
    {"zeros", -3, 3, 0.9, 0, false},
    {"wide", -40, 40, 0.05, 0, false},
    {"cancelling", -6, 6, 0.05, 0, true},
    {"cancelling far", -30, 30, 0, 0, true},
};
constexpr Spread kExtremes[] = {
    {"all exponents", -133, 127, 0.05, 0, false}, {"subnormal", -133, -120, 0.1, 0, false},
    {"small", -75, -50, 0.3, 0, false},           {"huge", 50, 70, 0.1, 0, true},
    {"specials", -10, 10, 0.1, 0.02, false},
};

TEST(MmaMath, VectorsAgreeWithTheModelOnBf16) {
  for (HostIsa isa : isas()) {
    for (const Spread& spread : kSpreads) compare(spread, 16, 7, -126, 25, isa);
    for (const Spread& spread : kExtremes) compare(spread, 16, 7, -126, 25, isa);
  }
}

TEST(MmaMath, VectorsAgreeWithTheModelOnTf32AndShortSums) {
  for (HostIsa isa : isas()) {
    for (const Spread& spread : kSpreads) {
      compare(spread, 8, 10, -126, 25, isa);
      compare(spread, 4, 10, -126, 24, isa);
    }
    for (const Spread& spread : kExtremes) compare(spread, 8, 10, -126, 25, isa);
  }
}

TEST(MmaMath, VectorsAgreeWithTheModelOnF16AndThirtyTwoProducts) {
  const Spread half = {"f16", -14, 15, 0.1, 0, false};
  const Spread most = {"the largest f16", 15, 15, 0, 0, false};
  const Spread byte = {"e4m3", -6, 8, 0.2, 0, false};
  const Spread byte_most = {"the largest e4m3", 8, 8, 0, 0, false};
  for (HostIsa isa : isas()) {
    compare(half, 16, 10, -14, 25, isa);
    compare(most, 16, 10, -14, 25, isa);
    compare(byte, 32, 3, -6, 25, isa);
    compare(byte_most, 32, 3, -6, 25, isa);
  }
}

// 1 + 2^-24 + ... : what is below 2^-25 of the largest exponent is cut from each term, and the sum
// then to 24 bits.
TEST(MmaMath, TruncatesAsPublished) {
  for (HostIsa isa : isas()) {
    const auto sum = [&](std::vector<std::pair<float, float>> pairs, float c) {
      Case work(16, 1);
      for (size_t j = 0; j < pairs.size(); ++j) {
        work.a[j * kPanelWidth] = pairs[j].first;
        work.b[j] = pairs[j].second;
      }
      work.c[0] = c;
      mma_kernels(isa).hardware(work.panel(isa, -126));
      return work.d[0];
    };
    // Two halves of a unit in the last place make one; each alone is cut.
    EXPECT_EQ(sum({{0x1p-12f, 0x1p-12f}, {0x1p-12f, 0x1p-12f}}, 1.0f), 1.0f + 0x1p-23f);
    EXPECT_EQ(sum({{0x1p-12f, 0x1p-12f}}, 1.0f), 1.0f);
    // 2^-26 is lost term by term: sixteen of them are not 2^-22.
    std::vector<std::pair<float, float>> tiny(16, {0x1p-13f, 0x1p-13f});
    EXPECT_EQ(sum(tiny, 1.0f), 1.0f);
    std::vector<std::pair<float, float>> small(16, {0x1p-13f, 0x1p-12f});
    EXPECT_EQ(sum(small, 1.0f), 1.0f + 0x1p-21f);
    // Towards zero on both sides.
    EXPECT_EQ(sum({{0x1p-12f, -0x1p-12f}}, 1.0f), 1.0f - 0x1p-24f);
    EXPECT_EQ(sum({{0x1p-13f, -0x1p-13f}}, 1.0f), 1.0f);
    EXPECT_EQ(sum({{0x1p-12f, -0x1p-12f}}, -1.0f), -1.0f);
    // 1.5 * 1.5 = 2.25 has the exponent 0, not 1: 25 bits below 1 are kept.
    EXPECT_EQ(sum({{1.5f, 1.5f}, {-1.5f, 1.5f}, {0x1p-12f, 0x1p-13f}}, 0.0f), 0x1p-25f);
    EXPECT_TRUE(same(sum({{-0.0f, 1.0f}}, -0.0f), 0.0f));
    EXPECT_TRUE(same(sum({}, -3.0f), -3.0f));
    EXPECT_EQ(std::bit_cast<uint32_t>(sum({{kInfinity, 0.0f}}, 1.0f)), 0x7FFFFFFFu);
    EXPECT_EQ(sum({{kInfinity, 1.0f}}, 1.0f), kInfinity);
  }
}

// A side's elements as bit patterns: bf16 1.0 is 0x3F80, tf32 drops 13 bits, and so on.
float one_product(ElementType type, uint32_t a, uint32_t b, bool negate, int k) {
  auto wide = std::make_unique<MmaSide>(), narrow = std::make_unique<MmaSide>();
  wide->reset(type, k, 1, true);
  narrow->reset(type, k, 1, false);
  for (int j = 0; j < k; ++j) narrow->set(0, j, 0);
  wide->set(0, k - 1, a);
  narrow->set(0, k - 1, b);
  wide->finish(negate);
  narrow->finish(false);
  alignas(64) uint32_t d[kPanelWidth];
  MmaTarget target;
  target.d[0] = d;
  target.d[1] = d + 16;
  target.stride = kPanelWidth;
  multiply_panel(*wide, 0, *narrow, 0, 1, target, MmaRules{});
  return std::bit_cast<float>(d[0]);
}

TEST(MmaMath, ReadsEveryFormat) {
  EXPECT_EQ(one_product(ElementType::kBF16, 0x3F80, 0xC000, false, 16), -2.0f);
  EXPECT_EQ(one_product(ElementType::kBF16, 0x3F80, 0xC000, true, 16), 2.0f);
  EXPECT_EQ(one_product(ElementType::kF16, 0x3C00, 0x4200, false, 16), 3.0f);
  EXPECT_EQ(one_product(ElementType::kF16, 0x0001, 0x3C00, false, 16), 0x1p-24f);
  EXPECT_EQ(one_product(ElementType::kF16, 0x7C00, 0x3C00, false, 16), kInfinity);
  EXPECT_EQ(one_product(ElementType::kTF32, 0x3F801FFF, 0x40000000, false, 8), 2.0f);
  EXPECT_EQ(one_product(ElementType::kE4M3, 0x38, 0x7E, false, 32), 448.0f);
  EXPECT_EQ(one_product(ElementType::kE4M3, 0x38, 0x01, false, 32), 0x1p-9f);
  EXPECT_EQ(one_product(ElementType::kE5M2, 0x3C, 0x7B, false, 32), 57344.0f);
  EXPECT_EQ(one_product(ElementType::kE2M3, 0x08, 0x1F, false, 32), 7.5f);
  EXPECT_EQ(one_product(ElementType::kE3M2, 0x0C, 0x1F, false, 32), 28.0f);
  EXPECT_EQ(one_product(ElementType::kE2M1, 0x02, 0x0F, false, 32), -6.0f);
}

TEST(MmaMath, HalfAccumulatorsRoundToNearestEven) {
  auto wide = std::make_unique<MmaSide>(), narrow = std::make_unique<MmaSide>();
  wide->reset(ElementType::kF16, 16, 32, true);
  narrow->reset(ElementType::kF16, 16, 1, false);
  for (int j = 0; j < 16; ++j) narrow->set(0, j, j == 0 ? 0x3C00 : 0);
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 16; ++j) wide->set(i, j, 0);
  }
  const uint16_t values[] = {0x1000, 0x0FFF, 0x1001, 0x9000};  // 2^-11, just below, just above, -
  for (int i = 0; i < 4; ++i) wide->set(i, 0, values[i]);
  wide->finish(false);
  narrow->finish(false);
  alignas(64) uint32_t c[kPanelWidth];
  for (uint32_t& x : c) x = 0x3C00;  // 1
  c[31] = 0x3C01;
  MmaTarget target;
  target.c[0] = target.d[0] = c;
  target.c[1] = target.d[1] = c + 16;
  target.stride = kPanelWidth;
  target.lanes = 0x80000007;
  MmaRules rules;
  rules.accumulator = Accumulator::kF16;
  multiply_panel(*wide, 0, *narrow, 0, 1, target, rules);
  EXPECT_EQ(c[0], 0x3C00u);  // a tie, to even
  EXPECT_EQ(c[1], 0x3C00u);
  EXPECT_EQ(c[2], 0x3C01u);
  EXPECT_EQ(c[3], 0x3C00u) << "lane 3 is not written";
  EXPECT_EQ(c[31], 0x3C01u);
}

TEST(MmaMath, IntegersWrapOrSaturate) {
  auto wide = std::make_unique<MmaSide>(), narrow = std::make_unique<MmaSide>();
  wide->reset(ElementType::kU8, 32, 32, true);
  narrow->reset(ElementType::kS8, 32, 1, false);
  for (int j = 0; j < 32; ++j) {
    for (int i = 0; i < 32; ++i) wide->set(i, j, 255);
    narrow->set(0, j, 0x7F);
  }
  wide->finish(false);
  narrow->finish(false);
  alignas(64) uint32_t c[kPanelWidth] = {0x7FFFFFFF, 5};
  MmaTarget target;
  target.c[0] = target.d[0] = c;
  target.c[1] = target.d[1] = c + 16;
  target.stride = kPanelWidth;
  MmaRules rules;
  rules.accumulator = Accumulator::kS32;
  multiply_panel(*wide, 0, *narrow, 0, 1, target, rules);
  EXPECT_EQ(c[0], 0x7FFFFFFFu + 32u * 255u * 127u);
  EXPECT_EQ(c[1], 5u + 32u * 255u * 127u);
  rules.saturate = true;
  c[0] = 0x7FFFFFFF;
  multiply_panel(*wide, 0, *narrow, 0, 1, target, rules);
  EXPECT_EQ(c[0], 0x7FFFFFFFu);
}

TEST(MmaMath, ExactAndFastAreNear) {
  for (HostIsa isa : isas()) {
    std::mt19937 random(7);
    const Spread spread = {"near", -3, 3, 0.1, 0, false};
    Case work(16, 4);
    for (float& x : work.a) x = draw(random, spread, 7);
    for (float& x : work.b) x = draw(random, spread, 7);
    for (float& x : work.c) x = draw(random, spread, 23);
    const MmaPanel panel = work.panel(isa, -126);
    mma_kernels(isa).exact(panel);
    const std::vector<float> exact = work.d;
    for (size_t i = 0; i < exact.size(); ++i) {
      double want = work.c[i], size = std::abs(want);
      for (size_t j = 0; j < 16; ++j) {
        const double p = static_cast<double>(work.a[j * kPanelWidth + i % kPanelWidth]) *
                         work.b[i / kPanelWidth * 16 + j];
        want += p;
        size += std::abs(p);
      }
      EXPECT_EQ(exact[i], static_cast<float>(want));
      mma_kernels(isa).fast(panel);
      EXPECT_NEAR(work.d[i], want, size * 0x1p-20);
    }
  }
}

}  // namespace
}  // namespace ptxemu
