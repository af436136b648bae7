// cvt, cvt.pack, mov, cvta: widths, ties, saturation.
#include "alu_program.h"

namespace ptxemu::test {
namespace {

TEST(ConvertOps, IntegersExtendAndCut) {
  EXPECT_EQ(results({"cvt.s64.s32 d, a", 64}, {{s32(-2)}}), (Values{~uint64_t{1}}));
  EXPECT_EQ(results({"cvt.u64.u32 d, a", 64}, {{s32(-2)}}), (Values{0xfffffffe}));
  EXPECT_EQ(results({"cvt.s32.s8 d, a"}, {{0x12345680}}), (Values{0xffffff80}));
  EXPECT_EQ(results({"cvt.u16.u32 d, a", 16}, {{0x12345678}}), (Values{0x5678}));
  EXPECT_EQ(results({"cvt.u8.u32 d, a", 16}, {{0x12345678}}), (Values{0x78}));
  EXPECT_EQ(results({"cvt.u32.s16 d, a", 64, 16}, {{0x8000}}), (Values{0xffff8000}));
  EXPECT_EQ(results({"cvt.sat.u8.s32 d, a"}, {{s32(-1), 300, 7}}), (Values{0, 255, 7}));
  EXPECT_EQ(results({"cvt.sat.s16.u32 d, a"}, {{70000}}), (Values{0x7fff}));
}

TEST(ConvertOps, IntegersToFloats) {
  EXPECT_EQ(results({"cvt.rn.f32.s32 d, a"}, {{s32(-5), 0x01000001, 0x01000003}}),
            (Values{f32(-5), f32(0x1p24f), f32(0x1.000004p24f)}));
  EXPECT_EQ(results({"cvt.rp.f32.u32 d, a"}, {{0x01000001}}), (Values{f32(0x1.000002p24f)}));
  EXPECT_EQ(results({"cvt.rz.f32.u64 d, a", 32, 64}, {{~uint64_t{0}}}),
            (Values{f32(0x1.fffffep63f)}));
  EXPECT_EQ(results({"cvt.rn.f16.s32 d, a", 16}, {{2049, 2051, 70000}}),
            (Values{0x6800, 0x6802, 0x7c00}));
  EXPECT_EQ(results({"cvt.rn.f64.s32 d, a", 64}, {{s32(-3)}}), (Values{f64(-3)}));
  // One rounding, not two: 2^53 + 1 with a tie of float far below it.
  EXPECT_EQ(results({"cvt.rn.f32.u64 d, a", 32, 64}, {{0x8000008000000001}}),
            (Values{f32(0x1.000002p63f)}));
}

TEST(ConvertOps, FloatsToIntegers) {
  const std::vector<Values> ties{{f32(2.5f), f32(-2.5f), f32(3e9f), kNan, f32(-1e10f)}};
  EXPECT_EQ(results({"cvt.rni.s32.f32 d, a"}, ties),
            (Values{2, s32(-2), 0x7fffffff, 0, 0x80000000}));
  EXPECT_EQ(results({"cvt.rzi.s32.f32 d, a"}, ties),
            (Values{2, s32(-2), 0x7fffffff, 0, 0x80000000}));
  EXPECT_EQ(results({"cvt.rmi.s32.f32 d, a"}, ties),
            (Values{2, s32(-3), 0x7fffffff, 0, 0x80000000}));
  EXPECT_EQ(results({"cvt.rpi.u32.f32 d, a"}, ties), (Values{3, 0, 3000000000, 0, 0}));
  EXPECT_EQ(results({"cvt.rzi.s64.f32 d, a", 64}, {{kNan, kInf, f32(-3.7f)}}),
            (Values{uint64_t{1} << 63, ~uint64_t{0} >> 1, ~uint64_t{0} - 2}));
  EXPECT_EQ(results({"cvt.rzi.u16.f32 d, a", 16}, {{f32(70000), f32(-1)}}), (Values{0xffff, 0}));
}

TEST(ConvertOps, BetweenFloats) {
  // The last: above a tie of bf16 by less than a double-rounding through f16 would see.
  EXPECT_EQ(results({"cvt.rn.bf16.f32 d, a", 16},
                    {{f32(1), 0x3f808000, 0x3f818000, 0x3f808001, kNan, kMaxFloat}}),
            (Values{0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x7fff, 0x7f80}));
  EXPECT_EQ(results({"cvt.rz.bf16.f32 d, a", 16}, {{0x3f80ffff, kMaxFloat}}),
            (Values{0x3f80, 0x7f7f}));
  EXPECT_EQ(results({"cvt.rn.satfinite.bf16.f32 d, a", 16}, {{kMaxFloat, kMinusInf, kNan}}),
            (Values{0x7f7f, 0xff7f, 0x7fff}));
  EXPECT_EQ(results({"cvt.rn.f16.f32 d, a", 16}, {{f32(1), f32(65520), f32(65519), f32(0x1p-24f),
                                                   f32(0x1p-25f), f32(0x1.8p-24f), kMinusInf}}),
            (Values{0x3c00, 0x7c00, 0x7bff, 1, 0, 2, 0xfc00}));
  EXPECT_EQ(results({"cvt.f32.f16 d, a", 32, 16}, {{0x3c00, 1, 0xfc00, 0x7e00}}),
            (Values{f32(1), f32(0x1p-24f), kMinusInf, kNan}));
  EXPECT_EQ(results({"cvt.f32.bf16 d, a", 32, 16}, {{0xbf80}}), (Values{f32(-1)}));
  EXPECT_EQ(results({"cvt.rm.f32.f64 d, a", 32, 64}, {{f64(1 - 0x1p-40)}}),
            (Values{f32(0x1.fffffep-1f)}));
  EXPECT_EQ(results({"cvt.ftz.f64.f32 d, a", 64}, {{kTiny}}), (Values{0}));
  EXPECT_EQ(results({"cvt.rni.f32.f32 d, a"}, {{f32(2.5f), f32(-0.25f)}}),
            (Values{f32(2), 0x80000000}));
  EXPECT_EQ(results({"cvt.sat.f32.f32 d, a"}, {{f32(2.5f), f32(-1), kNan}}),
            (Values{f32(1), 0, 0}));
  EXPECT_EQ(results({"cvt.rna.tf32.f32 d, a"}, {{0x3f801000, 0x3f800fff}}),
            (Values{0x3f802000, 0x3f800000}));
  EXPECT_EQ(results({"cvt.rn.tf32.f32 d, a"}, {{0x3f801000, 0x3f803000}}),
            (Values{0x3f800000, 0x3f804000}));
}

TEST(ConvertOps, PairsPutTheFirstAbove) {
  EXPECT_EQ(results({"cvt.rn.bf16x2.f32 d, a, b"}, {{f32(1)}, {f32(2)}}), (Values{0x3f804000}));
  EXPECT_EQ(results({"cvt.rn.relu.f16x2.f32 d, a, b"}, {{f32(-1)}, {f32(2)}}),
            (Values{0x00004000}));
  EXPECT_EQ(results({"cvt.rz.f16x2.f32 d, a, b"}, {{f32(1e6f)}, {f32(1.9999f)}}),
            (Values{0x7bff3fff}));
  EXPECT_EQ(results({"cvt.rs.bf16x2.f32 d, a, b, c"},
                    {{0x3f800001}, {0x3f80ffff}, {0xffff0000, 0xfffe0001}}),
            (Values{0x3f813f80, 0x3f803f81}));
}

TEST(ConvertOps, EightSixAndFourBits) {
  EXPECT_EQ(
      results({"cvt.rn.satfinite.e4m3x2.f32 d, a, b", 16},
              {{f32(1), f32(1000), kNan, f32(0x1p-9f)}, {f32(-2), f32(-448), kInf, f32(0x1p-10f)}}),
      (Values{0x38c0, 0x7efe, 0x7f7e, 0x0100}));
  EXPECT_EQ(results({"cvt.rn.satfinite.e5m2x2.f32 d, a, b", 16},
                    {{f32(1), f32(1.125f)}, {f32(60000), f32(1.375f)}}),
            (Values{0x3c7b, 0x3c3e}));
  EXPECT_EQ(results({"cvt.rn.satfinite.relu.e4m3x2.f32 d, a, b", 16}, {{f32(-1)}, {f32(1)}}),
            (Values{0x0038}));
  EXPECT_EQ(results({"cvt.rn.f16x2.e4m3x2 d, a", 32, 16}, {{0x38c0, 0x7f01}}),
            (Values{0x3c00c000, 0x7fff1800}));
  EXPECT_EQ(results({"cvt.rn.f16x2.e5m2x2 d, a", 32, 16}, {{0x3c7c}}), (Values{0x3c007c00}));
  EXPECT_EQ(results({"cvt.rn.satfinite.e4m3x2.f16x2 d, a", 16}, {{0x3c00c000}}), (Values{0x38c0}));
  // e2m1: 0 0.5 1 1.5 2 3 4 6
  EXPECT_EQ(results({"cvt.rn.satfinite.e2m1x2.f32 d, a, b", 16},
                    {{f32(2.5f), f32(5), f32(0.25f), kNan},
                     {f32(-100), f32(0.75f), f32(-0.3f), f32(3.5f)}}),
            (Values{0x4f, 0x62, 0x09, 0x76}));
  EXPECT_EQ(results({"cvt.rn.satfinite.e2m3x2.f32 d, a, b", 16}, {{f32(7.5f)}, {f32(0.125f)}}),
            (Values{0x1f01}));
  EXPECT_EQ(results({"cvt.rn.f16x2.e3m2x2 d, a", 32, 16}, {{0x1f0c}}), (Values{0x4f003c00}));
  EXPECT_EQ(results({"cvt.rp.satfinite.ue8m0x2.f32 d, a, b", 16}, {{f32(1)}, {f32(1.5f)}}),
            (Values{0x7f80}));
  EXPECT_EQ(results({"cvt.rn.bf16x2.ue8m0x2 d, a", 32, 16}, {{0x7f80, 0x00ff}}),
            (Values{0x3f804000, 0x00407fff}));
}

TEST(ConvertOps, PacksIntegers) {
  EXPECT_EQ(results({"cvt.pack.sat.s16.s32 d, a, b"}, {{40000}, {s32(-40000)}}),
            (Values{0x7fff8000}));
  EXPECT_EQ(results({"cvt.pack.sat.u8.s32.b32 d, a, b, c"}, {{300}, {s32(-4)}, {0xabcd}}),
            (Values{0xabcdff00}));
}

TEST(ConvertOps, MovesPackAndUnpack) {
  EXPECT_EQ(results({"mov.b64 d, {a, b}", 64}, {{1}, {2}}), (Values{0x0000000200000001}));
  EXPECT_EQ(results({"mov.b64 {_, d}, a", 32, 64}, {{0x1122334455667788}}), (Values{0x11223344}));
  EXPECT_EQ(results({"mov.b32 d, {a, b}", 32, 16, 16}, {{0x1111}, {0x2222}}), (Values{0x22221111}));
  EXPECT_EQ(results({"mov.b64 d, {a, b, c, a}", 64, 16, 16, 16}, {{1}, {2}, {3}}),
            (Values{0x0001000300020001}));
  EXPECT_EQ(results({"mov.pred d, a", 1, 1}, {{0, 1}}), (Values{0, 1}));
  EXPECT_EQ(results({"mov.b64 {d, _}, w", 32, 32, 64, 64,
                     ".reg .b128 v;\n.reg .b64 w;\nmov.b128 v, {b, c};\nmov.b128 {_, w}, v;\n"},
                    {{0}, {1}, {0x55}}),
            (Values{0x55}));
  EXPECT_EQ(results({"mov.u32 d, %laneid"}, {{0, 0, 0}}), (Values{0, 1, 2}));
}

TEST(ConvertOps, AddressWindows) {
  EXPECT_EQ(results({"cvta.shared.u64 d, a", 64, 64}, {{0x1000400}}),
            (Values{(uint64_t{0x10} << 36) + 0x1000400}));
  EXPECT_EQ(results({"cvta.to.shared.u64 d, a", 64, 64}, {{(uint64_t{0x10} << 36) + 0x1000400}}),
            (Values{0x1000400}));
  EXPECT_EQ(results({"cvta.to.global.u64 d, a", 64, 64}, {{0x1234567890}}), (Values{0x1234567890}));
  EXPECT_EQ(results({"isspacep.shared d, a", 1, 64}, {{(uint64_t{0x10} << 36) + 0x400, 0x400}}),
            (Values{1, 0}));
  EXPECT_EQ(results({"isspacep.global d, a", 1, 64}, {{(uint64_t{0x11} << 36) + 0x400, 0x400}}),
            (Values{0, 1}));
}

}  // namespace
}  // namespace ptxemu::test
