// Floating point: NaN, infinities, subnormals, ties, every rounding.
#include <cfenv>
#include <cmath>
#include <random>

#include "alu_program.h"

namespace ptxemu::test {
namespace {

const uint64_t kOneUlp = f32(0x1p-24f);  // half a unit in the last place of 1

TEST(FloatOps, AddRoundsAsAsked) {
  const std::vector<Values> up{{f32(1)}, {kOneUlp, f32(0x1.8p-24f), f32(-0x1p-25f)}};
  EXPECT_EQ(results({"add.rn.f32 d, a, b"}, up), (Values{f32(1), f32(0x1.000002p0f), f32(1)}));
  EXPECT_EQ(results({"add.rz.f32 d, a, b"}, up), (Values{f32(1), f32(1), f32(0x1.fffffep-1f)}));
  EXPECT_EQ(results({"add.rp.f32 d, a, b"}, up),
            (Values{f32(0x1.000002p0f), f32(0x1.000002p0f), f32(1)}));
  EXPECT_EQ(results({"add.rm.f32 d, a, b"}, up), (Values{f32(1), f32(1), f32(0x1.fffffep-1f)}));
}

TEST(FloatOps, AddAtTheEdges) {
  EXPECT_EQ(results({"add.f32 d, a, b"},
                    {{kInf, kInf, kMaxFloat, 0xffc00001}, {kMinusInf, f32(1), kMaxFloat, 0}}),
            (Values{kNan, kInf, kInf, kNan}));
  EXPECT_EQ(results({"add.rz.f32 d, a, b"}, {{kMaxFloat, kInf}, {kMaxFloat, kMaxFloat}}),
            (Values{kMaxFloat, kInf}));
  EXPECT_EQ(results({"add.rm.f32 d, a, b"}, {{f32(1), 0, 0x80000000}, {f32(-1), 0, 0}}),
            (Values{0x80000000, 0, 0x80000000}));
  EXPECT_EQ(results({"add.f32 d, a, b"}, {{kTiny}, {kTiny}}), (Values{2}));
  EXPECT_EQ(results({"add.ftz.f32 d, a, b"}, {{kTiny, 0x80800000}, {kTiny, 0x00800001}}),
            (Values{0, 0}));
  EXPECT_EQ(results({"sub.sat.f32 d, a, b"}, {{f32(3), f32(1), kInf}, {f32(1), f32(2), kInf}}),
            (Values{f32(1), 0, 0}));
}

// Against the host's own rounding modes, on numbers of all sizes.
float with_mode(int mode, char op, float a, float b, float c) {
  volatile float x = a, y = b, z = c, r = 0;
  std::fesetround(mode);
  switch (op) {
    case '+': r = x + y; break;
    case '*': r = x * y; break;
    default: r = std::fma(x, y, z); break;
  }
  std::fesetround(FE_TONEAREST);
  return r;
}

TEST(FloatOps, DirectedRoundingsAgreeWithTheHost) {
  std::mt19937 random(7);
  const std::pair<std::string, int> modes[] = {
      {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  const std::pair<std::string, char> ops[] = {
      {"add.RND.f32 d, a, b", '+'}, {"mul.RND.f32 d, a, b", '*'}, {"fma.RND.f32 d, a, b, c", 'f'}};
  for (auto [statement, op] : ops) {
    for (const auto& [name, mode] : modes) {
      Values a, b, c, expected;
      for (int i = 0; i < 32; ++i) {
        // Exponents near each other, small ones, and any.
        const auto draw = [&] {
          const uint32_t bits = random();
          const uint32_t near = (bits & 0x807fffff) | (118 + bits % 20) << 23;
          return i % 3 == 0 ? bits & 0xfeffffff : i % 3 == 1 ? near : bits & 0x80ffffff;
        };
        a.push_back(draw());
        b.push_back(draw());
        c.push_back(draw());
        const auto as_float = [](uint64_t x) {
          return std::bit_cast<float>(static_cast<uint32_t>(x));
        };
        expected.push_back(
            f32(with_mode(mode, op, as_float(a[i]), as_float(b[i]), as_float(c[i]))));
      }
      std::string text = statement;
      text.replace(text.find("RND"), 3, name);
      EXPECT_EQ(results({text}, {a, b, c}), expected) << text;
    }
  }
}

TEST(FloatOps, PackedPairs) {
  const uint64_t a = pair(f32(1), f32(2), 32), b = pair(f32(3), f32(4), 32),
                 c = pair(f32(5), f32(6), 32);
  EXPECT_EQ(results({"add.f32x2 d, a, b", 64, 64, 64, 64}, {{a}, {b}}),
            (Values{pair(f32(4), f32(6), 32)}));
  EXPECT_EQ(results({"fma.rn.ftz.f32x2 d, a, b, c", 64, 64, 64, 64}, {{a}, {b}, {c}}),
            (Values{pair(f32(8), f32(14), 32)}));
  EXPECT_EQ(results({"sub.rm.f32x2 d, a, b", 64, 64, 64, 64},
                    {{pair(f32(1), kOneUlp, 32)}, {pair(kOneUlp, f32(-1), 32)}}),
            (Values{pair(f32(0x1.fffffep-1f), f32(1), 32)}));
}

// Which numbers near the least normal one .ftz makes zero: those that are less when they are
// rounded to 24 bits with any exponent.
TEST(FloatOps, FlushesWhatIsSmallBeforeItsExponentIsCut) {
  constexpr uint64_t kLeast = 0x00800000, kZero = 0, kBelowOne = 0x3f7fffff;
  EXPECT_EQ(results({"mul.rn.f32 d, a, b"}, {{kLeast}, {kBelowOne}}), (Values{kLeast}));
  EXPECT_EQ(results({"mul.rn.ftz.f32 d, a, b"}, {{kLeast, 0x80800000}, {kBelowOne, kBelowOne}}),
            (Values{kZero, 0x80000000}));
  EXPECT_EQ(results({"mul.rp.ftz.sat.f32 d, a, b"}, {{kLeast}, {kBelowOne}}), (Values{kZero}));
  // The least normal number less 2^-24, 2^-25 (a tie, to even) and 2^-26 of itself.
  const std::vector<Values> sums{
      {0x80800000}, {f32(0x1p-24f), f32(0x1p-25f), f32(0x1p-26f)}, {kLeast}};
  EXPECT_EQ(results({"fma.rn.ftz.f32 d, a, b, c"}, sums), (Values{kZero, kLeast, kLeast}));
  EXPECT_EQ(results({"fma.rp.ftz.f32 d, a, b, c"}, sums), (Values{kZero, kLeast, kLeast}));
  EXPECT_EQ(results({"fma.rz.ftz.f32 d, a, b, c"}, sums), (Values{kZero, kZero, kZero}));
  // Others of the warp are as they were.
  EXPECT_EQ(results({"fma.rn.ftz.f32 c, a, b, c; mov.b32 d, c"},
                    {{0x80800000, f32(3)}, {f32(0x1p-24f), f32(5)}, {kLeast, f32(7)}}),
            (Values{kZero, f32(22)}));
}

TEST(FloatOps, FusedRoundsOnce) {
  // (1 + 2^-12)^2 - 1 needs 25 bits.
  EXPECT_EQ(results({"fma.rn.f32 d, a, b, c"}, {{f32(0x1.001p0f)}, {f32(0x1.001p0f)}, {f32(-1)}}),
            (Values{f32(0x1.0008p-11f)}));
  EXPECT_EQ(results({"fma.rn.f32 d, a, b, c"}, {{kInf, 0}, {0, 0}, {f32(1), 0x80000000}}),
            (Values{kNan, 0}));
  EXPECT_EQ(
      results({"fma.rn.f32.bf16 d, a, b, c", 32, 16, 16, 32}, {{0x3f80}, {0x4000}, {f32(0.5f)}}),
      (Values{f32(2.5f)}));
  EXPECT_EQ(results({"add.f32.f16 d, a, b", 32, 16, 32}, {{0x3c00}, {f32(2)}}), (Values{f32(3)}));
}

TEST(FloatOps, MinAndMax) {
  const std::vector<Values> both{{f32(1), kNan, kNan, 0x80000000, kTiny},
                                 {f32(2), f32(3), 0xffffffff, 0, 0}};
  EXPECT_EQ(results({"max.f32 d, a, b"}, both), (Values{f32(2), f32(3), kNan, 0, kTiny}));
  EXPECT_EQ(results({"min.f32 d, a, b"}, both), (Values{f32(1), f32(3), kNan, 0x80000000, 0}));
  EXPECT_EQ(results({"max.NaN.f32 d, a, b"}, both), (Values{f32(2), kNan, kNan, 0, kTiny}));
  EXPECT_EQ(results({"max.ftz.f32 d, a, b"}, both)[4], 0u);
  EXPECT_EQ(results({"max.f32 d, a, b, c"}, {{f32(1), kNan}, {f32(5), kNan}, {f32(3), f32(4)}}),
            (Values{f32(5), f32(4)}));
  EXPECT_EQ(results({"min.xorsign.abs.f32 d, a, b"}, {{f32(-3), f32(-2)}, {f32(2), f32(-5)}}),
            (Values{f32(-2), f32(2)}));
  EXPECT_EQ(results({"max.f64 d, a, b", 64, 64, 64}, {{f64(NAN), f64(-0.0)}, {f64(2), f64(0)}}),
            (Values{f64(2), 0}));
}

TEST(FloatOps, SignsAndProperties) {
  EXPECT_EQ(results({"abs.ftz.f32 d, a"}, {{f32(-2), kMinusTiny}}), (Values{f32(2), 0}));
  EXPECT_EQ(results({"neg.f32 d, a"}, {{f32(-2), 0}}), (Values{f32(2), 0x80000000}));
  EXPECT_EQ(results({"copysign.f32 d, a, b"}, {{f32(-1)}, {f32(3)}}), (Values{f32(-3)}));
  EXPECT_EQ(results({"testp.subnormal.f32 d, a", 1}, {{kTiny, 0, f32(1)}}), (Values{1, 0, 0}));
  EXPECT_EQ(results({"testp.notanumber.f32 d, a", 1}, {{kNan, kInf}}), (Values{1, 0}));
  EXPECT_EQ(results({"neg.bf16x2 d, a"}, {{0x3f80bf80}}), (Values{0xbf803f80}));
}

TEST(FloatOps, Comparisons) {
  const std::vector<Values> nan{{kNan, f32(1), 0x80000000}, {f32(1), f32(1), 0}};
  EXPECT_EQ(results({"setp.eq.f32 d, a, b", 1}, nan), (Values{0, 1, 1}));
  EXPECT_EQ(results({"setp.ne.f32 d, a, b", 1}, nan), (Values{0, 0, 0}));
  EXPECT_EQ(results({"setp.neu.f32 d, a, b", 1}, nan), (Values{1, 0, 0}));
  EXPECT_EQ(results({"setp.equ.f32 d, a, b", 1}, nan), (Values{1, 1, 1}));
  EXPECT_EQ(results({"setp.gtu.f32 d, a, b", 1}, nan), (Values{1, 0, 0}));
  EXPECT_EQ(results({"setp.geu.f32 d, a, b", 1}, nan), (Values{1, 1, 1}));
  EXPECT_EQ(results({"setp.ltu.f32 d, a, b", 1}, nan), (Values{1, 0, 0}));
  EXPECT_EQ(results({"setp.le.f32 d, a, b", 1}, nan), (Values{0, 1, 1}));
  EXPECT_EQ(results({"setp.nan.f32 d, a, b", 1}, nan), (Values{1, 0, 0}));
  EXPECT_EQ(results({"setp.num.f32 d, a, b", 1}, nan), (Values{0, 1, 1}));
  EXPECT_EQ(results({"setp.gt.ftz.f32 d, a, b", 1}, {{kTiny}, {0}}), (Values{0}));
  EXPECT_EQ(results({"setp.gt.f16 d, a, b", 1, 16, 16}, {{0x4000, 0x0001}, {0x3c00, 0}}),
            (Values{1, 1}));
  const auto halves = evaluate({"setp.lt.bf16x2 p|q, a, b"}, {{0x40003f80}, {0x3f804000}});
  EXPECT_EQ(halves.p, (Values{1}));
  EXPECT_EQ(halves.q, (Values{0}));
}

TEST(FloatOps, Halves) {
  EXPECT_EQ(results({"add.f16 d, a, b", 16, 16, 16}, {{0x3c00, 0x7bff}, {0x1000, 0x7bff}}),
            (Values{0x3c00, 0x7c00}));
  // 1 + 2^-11 is a tie, with any more above it.
  EXPECT_EQ(results({"fma.rn.f16 d, a, b, c", 16, 16, 16, 16},
                    {{0x0001, 0x3c00}, {0x0001, 0x1000}, {0x3c00, 0x3c01}}),
            (Values{0x3c00, 0x3c02}));
  EXPECT_EQ(results({"fma.rn.relu.bf16x2 d, a, b, c"}, {{0x3f80bf80}, {0x40004000}, {0x3f803f80}}),
            (Values{0x40400000}));
  EXPECT_EQ(results({"mul.f16x2 d, a, b"}, {{pair(0x4000, 0x7e01)}, {pair(0x4200, 0x3c00)}}),
            (Values{pair(0x4600, 0x7fff)}));
  EXPECT_EQ(results({"max.NaN.bf16x2 d, a, b"}, {{pair(0x7fc0, 0x8000)}, {pair(0x3f80, 0x0000)}}),
            (Values{pair(0x7fff, 0)}));
  EXPECT_EQ(results({"sub.sat.f16 d, a, b", 16, 16, 16}, {{0x4400, 0}, {0x3c00, 0x3c00}}),
            (Values{0x3c00, 0}));
}

// Approximations: near the exact value here, bit for bit in tests/ptx.
void expect_near(const Values& got, const std::vector<double>& exact, double relative) {
  for (size_t i = 0; i < exact.size(); ++i) {
    const double value = std::bit_cast<float>(static_cast<uint32_t>(got[i]));
    EXPECT_NEAR(value, exact[i], relative * std::abs(exact[i]) + 0x1p-149) << "lane " << i;
  }
}

TEST(FloatOps, Ex2) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> any(-126.0f, 128.0f);
  for (int round = 0; round < 8; ++round) {
    Values a;
    std::vector<double> exact;
    for (int i = 0; i < 32; ++i) {
      const float x = any(random);
      a.push_back(f32(x));
      exact.push_back(std::exp2(static_cast<double>(x)));
    }
    expect_near(results({"ex2.approx.f32 d, a"}, {a}), exact, 0x1p-22);
  }
  EXPECT_EQ(
      results({"ex2.approx.ftz.f32 d, a"}, {{kMinusInf, 0x80000000, kInf, kNan, kTiny, f32(-127)}}),
      (Values{0, f32(1), kInf, kNan, f32(1), 0}));
  EXPECT_EQ(results({"ex2.approx.f32 d, a"}, {{f32(-149), f32(-151)}}), (Values{1, 0}));
  EXPECT_EQ(results({"ex2.approx.ftz.bf16x2 d, a"}, {{pair(0x4000, 0xbf80)}}),
            (Values{pair(0x4080, 0x3f00)}));
}

TEST(FloatOps, Lg2) {
  std::mt19937 random(4);
  std::uniform_real_distribution<float> exponent(-126.0f, -1.5f);
  Values a;
  std::vector<double> exact;
  for (int i = 0; i < 32; ++i) {
    const float x = std::exp2(exponent(random));
    a.push_back(f32(x));
    exact.push_back(std::log2(static_cast<double>(x)));
  }
  expect_near(results({"lg2.approx.f32 d, a"}, {a}), exact, 0x1p-21);
  EXPECT_EQ(
      results({"lg2.approx.ftz.f32 d, a"}, {{0, 0x80000000, f32(-1), kInf, f32(1), kTiny, f32(8)}}),
      (Values{kMinusInf, kMinusInf, kNan, kInf, 0, kMinusInf, f32(3)}));
}

TEST(FloatOps, QuotientsAndRoots) {
  EXPECT_EQ(results({"rcp.approx.ftz.f32 d, a"}, {{f32(4), 0, 0x80000000, kInf, kTiny, kMaxFloat}}),
            (Values{f32(0.25f), kInf, kMinusInf, 0, kInf, 0}));
  EXPECT_EQ(results({"div.rn.f32 d, a, b"}, {{f32(1), 0}, {f32(3), 0}}),
            (Values{f32(1.0f / 3), kNan}));
  EXPECT_EQ(results({"div.rp.f32 d, a, b"}, {{f32(1)}, {f32(3)}}), (Values{f32(0x1.555556p-2f)}));
  EXPECT_EQ(results({"div.rz.f32 d, a, b"}, {{f32(1)}, {f32(3)}}), (Values{f32(0x1.555554p-2f)}));
  EXPECT_EQ(results({"div.approx.f32 d, a, b"},
                    {{f32(6), f32(1), kInf}, {f32(3), f32(0x1.8p126f), f32(0x1p127f)}}),
            (Values{f32(2), 0, kNan}));
  EXPECT_EQ(results({"div.full.f32 d, a, b"}, {{f32(1)}, {f32(0x1p127f)}}),
            (Values{f32(0x1p-127f)}));
  EXPECT_EQ(results({"sqrt.rn.f32 d, a"}, {{f32(2), f32(-1), 0x80000000}}),
            (Values{f32(std::sqrt(2.0f)), kNan, 0x80000000}));
  EXPECT_EQ(results({"sqrt.rm.f64 d, a", 64, 64}, {{f64(4)}}), (Values{f64(2)}));
  EXPECT_EQ(results({"rsqrt.approx.f32 d, a"}, {{f32(4), 0, kInf}}), (Values{f32(0.5f), kInf, 0}));
  EXPECT_EQ(results({"rcp.rn.f64 d, a", 64, 64}, {{f64(3)}}), (Values{f64(1.0 / 3)}));
  EXPECT_EQ(results({"rcp.approx.ftz.f64 d, a", 64, 64}, {{f64(3)}}),
            (Values{f64(1.0 / 3) & 0xffffffff00000000}));
  EXPECT_EQ(results({"sin.approx.f32 d, a"}, {{0, kInf}}), (Values{0, kNan}));
  EXPECT_EQ(results({"cos.approx.ftz.f32 d, a"}, {{0}}), (Values{f32(1)}));
  EXPECT_EQ(results({"tanh.approx.f32 d, a"}, {{kInf, 0x80000000}}), (Values{f32(1), 0x80000000}));
}

TEST(FloatOps, Doubles) {
  EXPECT_EQ(results({"fma.rn.f64 d, a, b, c", 64, 64, 64, 64},
                    {{f64(0x1.0000001p0)}, {f64(0x1.0000001p0)}, {f64(-1)}}),
            (Values{f64(0x1.00000008p-27)}));
  EXPECT_EQ(results({"add.rp.f64 d, a, b", 64, 64, 64}, {{f64(1)}, {f64(0x1p-60)}}),
            (Values{f64(0x1.0000000000001p0)}));
  EXPECT_EQ(results({"add.f64 d, a, b", 64, 64, 64}, {{f64(1)}, {f64(0x1p-60)}}), (Values{f64(1)}));
}

}  // namespace
}  // namespace ptxemu::test
