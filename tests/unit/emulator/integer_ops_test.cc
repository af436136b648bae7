// Integer arithmetic, bits, logic: expected values are the manual's definitions, worked by hand.
#include "alu_program.h"

namespace ptxemu::test {
namespace {

constexpr uint64_t kMin32 = 0x80000000, kMax32 = 0x7fffffff, kOnes = 0xffffffff;

TEST(IntegerOps, AddWraps) {
  EXPECT_EQ(results({"add.s32 d, a, b"}, {{1, kMax32, kOnes}, {2, 1, kOnes}}),
            (Values{3, kMin32, 0xfffffffe}));
  EXPECT_EQ(results({"add.u16 d, a, b", 16, 16, 16}, {{0xffff}, {2}}), (Values{1}));
  EXPECT_EQ(results({"add.s64 d, a, b", 64, 64, 64}, {{~uint64_t{0}}, {2}}), (Values{1}));
  EXPECT_EQ(results({"add.u16x2 d, a, b"}, {{0xffff0001}, {0x00010002}}), (Values{0x00000003}));
}

TEST(IntegerOps, SaturatesSums) {
  EXPECT_EQ(results({"add.sat.s32 d, a, b"}, {{kMax32, kMin32, 5}, {1, kOnes, kOnes}}),
            (Values{kMax32, kMin32, 4}));
  EXPECT_EQ(results({"sub.sat.s32 d, a, b"}, {{kMax32, kMin32, 0}, {kOnes, 1, kMin32}}),
            (Values{kMax32, kMin32, kMax32}));
}

TEST(IntegerOps, Products) {
  EXPECT_EQ(results({"mul.lo.s32 d, a, b"}, {{kMin32, 7}, {2, s32(-3)}}), (Values{0, s32(-21)}));
  EXPECT_EQ(results({"mul.hi.s32 d, a, b"}, {{kMin32, s32(-1)}, {kMin32, 1}}),
            (Values{0x40000000, kOnes}));
  EXPECT_EQ(results({"mul.hi.u32 d, a, b"}, {{kOnes}, {kOnes}}), (Values{0xfffffffe}));
  EXPECT_EQ(results({"mul.hi.u64 d, a, b", 64, 64, 64}, {{~uint64_t{0}}, {~uint64_t{0}}}),
            (Values{~uint64_t{0} - 1}));
  EXPECT_EQ(results({"mul.hi.u16 d, a, b", 16, 16, 16}, {{0xffff}, {0xffff}}), (Values{0xfffe}));
  EXPECT_EQ(results({"mul.wide.s32 d, a, b", 64}, {{s32(-2)}, {3}}), (Values{~uint64_t{0} - 5}));
  EXPECT_EQ(results({"mul.wide.u16 d, a, b", 32, 16, 16}, {{0xffff}, {0xffff}}),
            (Values{0xfffe0001}));
  EXPECT_EQ(results({"mad.wide.u32 d, a, b, c", 64, 32, 32, 64}, {{kOnes}, {kOnes}, {1}}),
            (Values{0xfffffffe00000002}));
  EXPECT_EQ(results({"mad.hi.sat.s32 d, a, b, c"}, {{kMax32}, {4}, {kMax32}}), (Values{kMax32}));
  EXPECT_EQ(results({"mad.lo.s32 d, a, b, c"}, {{3}, {5}, {s32(-1)}}), (Values{14}));
  EXPECT_EQ(results({"mul24.lo.s32 d, a, b"}, {{0x800000}, {2}}), (Values{0xff000000}));
  EXPECT_EQ(results({"mul24.hi.u32 d, a, b"}, {{0xffffff}, {0xffffff}}), (Values{0xfffffe00}));
}

TEST(IntegerOps, Carries) {
  EXPECT_EQ(
      results({"addc.u32 d, a, b", 32, 32, 32, 32, "add.cc.u32 e, a, b;\n"}, {{kOnes, 1}, {1, 1}}),
      (Values{1, 2}));
  EXPECT_EQ(
      results({"subc.u32 d, a, b", 32, 32, 32, 32, "sub.cc.u32 e, a, b;\n"}, {{0, 5}, {1, 1}}),
      (Values{kOnes - 1, 4}));
  EXPECT_EQ(results({"madc.hi.u32 d, a, b, c", 32, 32, 32, 32, "mad.lo.cc.u32 e, a, b, c;\n"},
                    {{kOnes}, {kOnes}, {kOnes}}),
            // lo = 1 + ~0 carries; hi = fffffffe + ffffffff + 1
            (Values{0xfffffffe}));
}

TEST(IntegerOps, Division) {
  EXPECT_EQ(results({"div.s32 d, a, b"}, {{s32(-7), kMin32, 5}, {2, kOnes, 0}}),
            (Values{s32(-3), kMin32, kOnes}));
  EXPECT_EQ(results({"rem.s32 d, a, b"}, {{s32(-7), kMin32, 5}, {2, kOnes, 0}}),
            (Values{s32(-1), 0, kOnes}));
  EXPECT_EQ(results({"div.u16 d, a, b", 16, 16, 16}, {{65535}, {10}}), (Values{6553}));
}

TEST(IntegerOps, SignsAndOrder) {
  EXPECT_EQ(results({"abs.s32 d, a"}, {{s32(-5), kMin32}}), (Values{5, kMin32}));
  EXPECT_EQ(results({"neg.s16 d, a", 16, 16}, {{1, 0x8000}}), (Values{0xffff, 0x8000}));
  EXPECT_EQ(results({"min.s32 d, a, b"}, {{s32(-1)}, {1}}), (Values{kOnes}));
  EXPECT_EQ(results({"max.u32 d, a, b"}, {{kOnes}, {1}}), (Values{kOnes}));
  EXPECT_EQ(results({"max.relu.s32 d, a, b"}, {{s32(-3)}, {s32(-2)}}), (Values{0}));
  EXPECT_EQ(results({"min.s16x2 d, a, b"}, {{0xffff0003}, {0x00010002}}), (Values{0xffff0002}));
  EXPECT_EQ(results({"sad.s32 d, a, b, c"}, {{s32(-2)}, {3}, {10}}), (Values{15}));
}

TEST(IntegerOps, CountsOfBits) {
  EXPECT_EQ(results({"popc.b64 d, a", 32, 64}, {{0xff00000000000001, 0}}), (Values{9, 0}));
  EXPECT_EQ(results({"clz.b32 d, a"}, {{0, 1, kOnes}}), (Values{32, 31, 0}));
  EXPECT_EQ(results({"bfind.u32 d, a"}, {{0, 0x10, kOnes}}), (Values{kOnes, 4, 31}));
  EXPECT_EQ(results({"bfind.s32 d, a"}, {{kOnes, s32(-17)}}), (Values{kOnes, 4}));
  EXPECT_EQ(results({"bfind.shiftamt.u32 d, a"}, {{0x10}}), (Values{27}));
  EXPECT_EQ(results({"brev.b32 d, a"}, {{1, 0x0000000f}}), (Values{kMin32, 0xf0000000}));
  EXPECT_EQ(
      results({"fns.b32 d, a, b, c"}, {{0b101101, 0b101101, 0b101101}, {1, 5, 3}, {2, s32(-3), 0}}),
      (Values{3, 2, 3}));
}

TEST(IntegerOps, Fields) {
  EXPECT_EQ(results({"bfe.u32 d, a, b, c"}, {{0x12345678}, {8, 28, 40, 0}, {8, 8, 4, 0}}),
            (Values{0x56, 0x1, 0, 0}));
  EXPECT_EQ(results({"bfe.s32 d, a, b, c"}, {{0x8000f000}, {12, 28, 40}, {4, 8, 4}}),
            (Values{kOnes, 0xfffffff8, kOnes}));
  Alu insert{"bfi.b32 d, a, b, c, e", 32, 32, 32, 32, "mov.b32 e, 8;\n"};
  EXPECT_EQ(results(insert, {{0xab}, {kOnes}, {4, 28, 32}}),
            (Values{0xfffffabf, 0xbfffffff, kOnes}));
  EXPECT_EQ(results({"szext.clamp.s32 d, a, b"}, {{0xff}, {8, 7, 40, 0}}),
            (Values{kOnes, kOnes, 0xff, 0}));
  EXPECT_EQ(results({"szext.wrap.u32 d, a, b"}, {{0xff}, {4, 36}}), (Values{0xf, 0xf}));
  EXPECT_EQ(results({"bmsk.clamp.b32 d, a, b"}, {{4, 4, 40, 4, 0}, {8, 32, 1, 0, 31}}),
            (Values{0xff0, 0xfffffff0, 0, 0, kMax32}));
  EXPECT_EQ(results({"bmsk.wrap.b32 d, a, b"}, {{36}, {33}}), (Values{0x10}));
}

TEST(IntegerOps, DotProducts) {
  EXPECT_EQ(results({"dp4a.u32.u32 d, a, b, c"}, {{0x01020304}, {0x05060708}, {10}}),
            (Values{10 + 5 + 12 + 21 + 32}));
  EXPECT_EQ(results({"dp4a.s32.u32 d, a, b, c"}, {{0xff000000}, {0xff000000}, {0}}),
            (Values{s32(-255)}));
  EXPECT_EQ(results({"dp2a.hi.u32.u32 d, a, b, c"}, {{0x00020003}, {0x04050607}, {1}}),
            (Values{1 + 3 * 5 + 2 * 4}));
}

TEST(IntegerOps, Logic) {
  EXPECT_EQ(results({"and.b32 d, a, b"}, {{0xff00}, {0x0ff0}}), (Values{0x0f00}));
  EXPECT_EQ(results({"xor.b64 d, a, b", 64, 64, 64}, {{~uint64_t{0}}, {1}}),
            (Values{~uint64_t{1}}));
  EXPECT_EQ(results({"not.b16 d, a", 16, 16}, {{1}}), (Values{0xfffe}));
  EXPECT_EQ(results({"cnot.b32 d, a"}, {{0, 5}}), (Values{1, 0}));
  EXPECT_EQ(results({"or.pred d, a, b", 1, 1, 1}, {{0, 1, 0}, {0, 0, 1}}), (Values{0, 1, 1}));
  EXPECT_EQ(results({"not.pred d, a", 1, 1}, {{0, 1}}), (Values{1, 0}));
  // ((a & b | c) ^ a), the manual's example
  EXPECT_EQ(results({"lop3.b32 d, a, b, c, 0x1A"}, {{0xf0}, {0xcc}, {0xaa}}), (Values{0x1a}));
  const auto both = evaluate({"lop3.or.b32 d|p, a, b, c, 0x80, 0"}, {{3, 0}, {1}, {1}});
  EXPECT_EQ(both.d, (Values{1, 0}));
  EXPECT_EQ(both.p, (Values{1, 0}));
}

TEST(IntegerOps, ShiftsBeyondTheWidth) {
  EXPECT_EQ(results({"shl.b32 d, a, b"}, {{1}, {4, 31, 32, kOnes}}), (Values{16, kMin32, 0, 0}));
  EXPECT_EQ(results({"shr.u32 d, a, b"}, {{kMin32}, {4, 31, 32}}), (Values{0x08000000, 1, 0}));
  EXPECT_EQ(results({"shr.s32 d, a, b"}, {{kMin32}, {4, 31, 99}}),
            (Values{0xf8000000, kOnes, kOnes}));
  EXPECT_EQ(results({"shl.b16 d, a, b", 16, 16}, {{1}, {15, 16}}), (Values{0x8000, 0}));
  EXPECT_EQ(results({"shr.s64 d, a, b", 64, 64}, {{uint64_t{1} << 63}, {63, 64}}),
            (Values{~uint64_t{0}, ~uint64_t{0}}));
  EXPECT_EQ(results({"shf.l.clamp.b32 d, a, b, c"}, {{0x80000001}, {0x12345678}, {4, 32, 40}}),
            (Values{0x23456788, 0x80000001, 0x80000001}));
  EXPECT_EQ(results({"shf.r.wrap.b32 d, a, b, c"}, {{0x80000001}, {0x12345678}, {4, 32}}),
            (Values{0x88000000, 0x80000001}));
}

TEST(IntegerOps, PermutesBytes) {
  const std::vector<Values> sources{{0x83828180}, {0x07060504}, {0x3210, 0x7654, 0x00f8}};
  EXPECT_EQ(results({"prmt.b32 d, a, b, c"}, sources),
            (Values{0x83828180, 0x07060504, 0x808000ff}));
  const std::vector<Values> modes{{0x03020100}, {0x07060504}, {0, 1, 2, 3}};
  EXPECT_EQ(results({"prmt.b32.f4e d, a, b, c"}, modes),
            (Values{0x03020100, 0x04030201, 0x05040302, 0x06050403}));
  EXPECT_EQ(results({"prmt.b32.b4e d, a, b, c"}, modes),
            (Values{0x05060700, 0x06070001, 0x07000102, 0x00010203}));
  EXPECT_EQ(results({"prmt.b32.ecr d, a, b, c"}, modes),
            (Values{0x00000000, 0x01010100, 0x02020100, 0x03020100}));
  EXPECT_EQ(results({"prmt.b32.rc16 d, a, b, c"}, modes),
            (Values{0x01000100, 0x03020302, 0x01000100, 0x03020302}));
}

TEST(IntegerOps, Selection) {
  EXPECT_EQ(results({"selp.b32 d, a, b, c", 32, 32, 32, 1}, {{10}, {20}, {1, 0}}),
            (Values{10, 20}));
  EXPECT_EQ(results({"slct.u32.s32 d, a, b, c"}, {{10}, {20}, {0, s32(-1)}}), (Values{10, 20}));
  EXPECT_EQ(results({"slct.u32.f32 d, a, b, c"}, {{10}, {20}, {0x80000000, kNan, kMinusTiny}}),
            (Values{10, 20, 20}));
  EXPECT_EQ(results({"slct.ftz.u32.f32 d, a, b, c"}, {{10}, {20}, {kMinusTiny}}), (Values{10}));
}

TEST(IntegerOps, Comparisons) {
  EXPECT_EQ(results({"setp.lt.s32 d, a, b", 1}, {{kOnes, 1}, {0, 1}}), (Values{1, 0}));
  EXPECT_EQ(results({"setp.lo.u32 d, a, b", 1}, {{kOnes, 0}, {0, 1}}), (Values{0, 1}));
  EXPECT_EQ(results({"setp.ge.u16 d, a, b", 1, 16, 16}, {{5, 4}, {5}}), (Values{1, 0}));
  EXPECT_EQ(results({"setp.gt.s64 d, a, b", 1, 64, 64}, {{0, ~uint64_t{0}}, {~uint64_t{0}, 0}}),
            (Values{1, 0}));
  const auto both =
      evaluate({"setp.eq.and.u32 p|q, a, b, !c", 32, 32, 32, 1}, {{1, 1, 2}, {1}, {0, 1, 0}});
  EXPECT_EQ(both.p, (Values{1, 0, 0}));
  EXPECT_EQ(both.q, (Values{0, 0, 1}));
  EXPECT_EQ(results({"set.gt.u32.s32 d, a, b"}, {{1, kOnes}, {0}}), (Values{kOnes, 0}));
  EXPECT_EQ(results({"set.eq.f32.u32 d, a, b"}, {{1, 2}, {1}}), (Values{f32(1), 0}));
}

}  // namespace
}  // namespace ptxemu::test
