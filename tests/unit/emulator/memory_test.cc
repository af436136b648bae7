// Loads, stores and atomics of PTX programs, against what the manual's sections say of them.
#include <bit>

#include "ptx_program.h"

namespace ptxemu {
namespace {

constexpr const char* kOutOfLane = "mad.wide.u32 %d2, %r0, 8, %d0;\n";

TEST(Memory, NarrowLoadsExtendToTheRegister) {
  PtxProgram p(std::string(kOutOfLane) +
               "ld.global.s8 %r1, [%d1];\nld.global.u8 %r2, [%d1];\n"
               "ld.global.s16 %d3, [%d1+2];\nld.global.b16 %r3, [%d1+2];\n"
               "st.global.u32 [%d0], %r1;\nst.global.u32 [%d0+4], %r2;\n"
               "st.global.u64 [%d0+8], %d3;\nst.global.u32 [%d0+16], %r3;\n"
               "st.global.u8 [%d0+20], %r3;\n");
  const uint64_t out = p.buffer("out", std::vector<uint32_t>(8, 0));
  const uint64_t in = p.buffer("in", std::vector<uint16_t>{0x1280, 0x8001});
  const auto report = p.launch(out, in, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  const auto got = p.read<uint32_t>(out, 6);
  EXPECT_EQ(got[0], 0xFFFFFF80u);
  EXPECT_EQ(got[1], 0x80u);
  EXPECT_EQ(got[2], 0xFFFF8001u);
  EXPECT_EQ(got[3], 0xFFFFFFFFu);
  EXPECT_EQ(got[4], 0x8001u);
  EXPECT_EQ(got[5], 0x01u);
}

TEST(Memory, VectorsGoThroughSharedMemoryInEveryLane) {
  PtxProgram p(
      "shl.b32 %r1, %r0, 4;\nmov.u32 %r2, tile;\nadd.u32 %r2, %r2, %r1;\n"
      "add.u32 %r3, %r0, 100;\nadd.u32 %r4, %r0, 200;\nadd.u32 %r5, %r0, 300;\n"
      "st.shared.v4.b32 [%r2], {%r0, %r3, %r4, %r5};\nbar.warp.sync -1;\n"
      "ld.shared.v2.b64 {%d4, %d5}, [%r2];\n"
      "mad.wide.u32 %d2, %r0, 16, %d0;\nst.global.v2.u64 [%d2], {%d4, %d5};\n",
      {}, ".shared .align 16 .b8 tile[512];");
  const uint64_t out = p.buffer("out", 512);
  const auto report = p.launch(out);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  const auto got = p.read<uint32_t>(out, 128);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(got[4 * lane + i], lane + 100 * i);
  }
}

TEST(Memory, WideRegistersAndEightWordVectors) {
  PtxProgram p(
      "ld.global.b128 %q0, [%d1];\nst.global.b128 [%d0], %q0;\n"
      "ld.global.nc.L1::no_allocate.L2::128B.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, _}, "
      "[%d1+32];\n"
      "st.relaxed.cta.global.L1::no_allocate.v8.b32 [%d0+32], {%r1, %r2, %r3, %r4, %r5, %r6, %r7, "
      "%r0};\n");
  std::vector<uint32_t> data(16);
  for (uint32_t i = 0; i < 16; ++i) data[i] = 1000 + i;
  const uint64_t in = p.buffer("in", data), out = p.buffer("out", 64);
  const auto report = p.launch(out, in, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  const auto got = p.read<uint32_t>(out, 16);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got[i], data[i]);
  for (int i = 8; i < 15; ++i) EXPECT_EQ(got[i], data[i]);
  EXPECT_EQ(got[15], 0u);
}

TEST(Memory, GenericAddressesReachEverySpace) {
  PtxProgram p(
      ".local .align 8 .b8 stack[16];\nmov.u64 %d3, stack;\ncvta.local.u64 %d4, %d3;\n"
      "mov.u64 %d5, tile;\ncvta.shared.u64 %d6, %d5;\n"
      "mad.wide.u32 %d6, %r0, 4, %d6;\n"
      "st.u32 [%d4+4], %r0;\nadd.u32 %r1, %r0, 7;\nst.u32 [%d6], %r1;\n"
      "ld.u32 %r2, [%d4+4];\nld.u32 %r3, [%d6];\nld.local.u32 %r4, [stack+4];\n"
      "add.u32 %r2, %r2, %r3;\nadd.u32 %r2, %r2, %r4;\n"
      "mad.wide.u32 %d2, %r0, 4, %d0;\nst.u32 [%d2], %r2;\n",
      {}, ".shared .align 16 .b8 tile[128];");
  const uint64_t out = p.buffer("out", 128);
  const auto report = p.launch(out);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  const auto got = p.read<uint32_t>(out, 32);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(got[lane], 3 * lane + 7);
}

TEST(Memory, ParametersAreReadByNameAndByAddress) {
  PtxProgram p(
      "ld.param.v2.u32 {%r1, %r2}, [map+8];\nmov.u64 %d3, map;\nld.param.u32 %r3, [%d3+8];\n"
      "cvta.param.u64 %d4, %d3;\nld.u32 %r4, [%d4+12];\n"
      "st.global.v4.u32 [%d0], {%r1, %r2, %r3, %r4};\n");
  const uint64_t out = p.buffer("out", 16);
  std::array<std::byte, 128> map{};
  const uint32_t values[] = {11, 22};
  std::memcpy(map.data() + 8, values, 8);
  const auto report = p.launch(out, 0, 1, 1, 1, 0, map);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint32_t>(out, 4), (std::vector<uint32_t>{11, 22, 11, 22}));
}

TEST(Memory, AnAccessOutsideItsAllocationStopsTheKernel) {
  PtxProgram p("ld.global.u32 %r1, [%d1+16];\nst.global.u32 [%d0], %r1;\n");
  const uint64_t in = p.buffer("keys", 16), out = p.buffer("out", 16);
  const auto report = p.launch(out, in, 1);
  EXPECT_EQ(report.status, "trap");
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, "out-of-bounds");
  EXPECT_NE(report.findings[0].message.find("keys (16 bytes)"), std::string::npos)
      << report.findings[0].message;
}

TEST(Memory, AMisalignedAccessStopsTheKernel) {
  PtxProgram p("ld.global.u32 %r1, [%d1+2];\nst.global.u32 [%d0], %r1;\n");
  const uint64_t in = p.buffer("keys", 16), out = p.buffer("out", 16);
  const auto report = p.launch(out, in, 1);
  EXPECT_EQ(report.status, "trap");
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, "misaligned");
}

TEST(Memory, ThirtyTwoBytesAtAGenericAddressAreOfGlobalMemory) {
  for (const bool global : {true, false}) {
    PtxProgram p(std::string("mov.u64 %d3, tile;\ncvta.shared.u64 %d4, %d3;\n") +
                     (global ? "mov.b64 %d4, %d1;\n" : "") +
                     "ld.v4.b64 {%d5, %d6, %d7, %d8}, [%d4];\nst.global.b64 [%d0], %d8;\n",
                 {}, ".shared .align 32 .b8 tile[32];");
    const uint64_t in = p.buffer("in", std::vector<uint64_t>{1, 2, 3, 4}), out = p.buffer("out", 8);
    const auto report = p.launch(out, in, 1);
    if (global) {
      ASSERT_EQ(report.status, "ok") << text_of(report);
      EXPECT_EQ(p.read<uint64_t>(out, 1)[0], 4u);
    } else {
      ASSERT_EQ(report.status, "trap");
      EXPECT_EQ(report.findings[0].rule, "bad-space");
    }
  }
}

TEST(Memory, UnknownQualifiersAreErrorsWithTheirLine) {
  try {
    PtxProgram p("ld.global.L1::sometimes.u32 %r1, [%d1];\n");
    p.launch(p.buffer("out", 16));
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("L1::sometimes"), std::string::npos) << error.what();
  }
}

TEST(Memory, AddressesMapBetweenTheCtasOfACluster) {
  PtxProgram p(
      "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, word;\nadd.u32 %r3, %r1, 40;\n"
      "st.shared.u32 [%r2], %r3;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n"
      "xor.b32 %r4, %r1, 1;\nmapa.shared::cluster.u32 %r5, %r2, %r4;\n"
      "ld.shared::cluster.u32 %r6, [%r5];\n"
      "mov.u64 %d3, word;\ncvta.shared.u64 %d4, %d3;\nmapa.u64 %d5, %d4, %r4;\nld.u32 %r7, [%d5];\n"
      "getctarank.shared::cluster.u32 %r8, %r5;\ngetctarank.u64 %r9, %d5;\n"
      "mad.wide.u32 %d2, %r1, 16, %d0;\nst.global.v4.u32 [%d2], {%r6, %r7, %r8, %r9};\n"
      "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
      {}, ".shared .align 16 .u32 word;");
  const uint64_t out = p.buffer("out", 32);
  const auto report = p.launch(out, 0, 1, 2, 2);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint32_t>(out, 8), (std::vector<uint32_t>{41, 41, 1, 1, 40, 40, 0, 0}));
}

// Known-good kernels map in every lane and use the result only where the rank exists.
TEST(Memory, ARankThatTheClusterLacksMattersOnlyWhenUsed) {
  const char* map =
      "mov.u32 %r2, word;\nmapa.shared::cluster.u32 %r5, %r2, %r0;\n"
      "setp.lt.u32 %p1, %r0, 1;\n";
  const char* head = ".shared .align 16 .u32 word;";
  PtxProgram good(std::string(map) + "@%p1 st.shared::cluster.u32 [%r5], %r0;\n", {}, head);
  const auto report = good.launch(good.buffer("out", 16));
  EXPECT_EQ(report.status, "ok") << text_of(report);
  PtxProgram bad(std::string(map) + "st.shared::cluster.u32 [%r5], %r0;\n", {}, head);
  EXPECT_EQ(bad.launch(bad.buffer("out", 16)).status, "trap");
}

// --- Atomics ------------------------------------------------------------------------------------

TEST(Atomics, LanesTakeTheirTurnInOrder) {
  PtxProgram p(
      "atom.global.add.u32 %r1, [%d1], 3;\natom.relaxed.gpu.global.inc.u32 %r2, [%d1+4], 4;\n"
      "atom.global.max.s32 %r3, [%d1+8], %r0;\nred.global.or.b32 [%d1+12], 8;\n"
      "atom.global.exch.b32 %r4, [%d1+16], %r0;\n"
      "mad.wide.u32 %d2, %r0, 16, %d0;\nst.global.v4.u32 [%d2], {%r1, %r2, %r3, %r4};\n");
  const uint64_t in = p.buffer("in", std::vector<int32_t>{0, 0, -5, 1, 77}),
                 out = p.buffer("out", 512);
  const auto report = p.launch(out, in);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  const auto got = p.read<int32_t>(out, 128);
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(got[4 * lane], 3 * lane);
    EXPECT_EQ(got[4 * lane + 1], lane % 5);
    EXPECT_EQ(got[4 * lane + 2], lane == 0 ? -5 : lane - 1);
    EXPECT_EQ(got[4 * lane + 3], lane == 0 ? 77 : lane - 1);
  }
  EXPECT_EQ(p.read<int32_t>(in, 5), (std::vector<int32_t>{96, 2, 31, 9, 31}));
}

TEST(Atomics, CompareAndSwapOfEveryWidth) {
  PtxProgram p(
      "mov.b16 %h1, 5;\nmov.b16 %h2, 9;\natom.global.cas.b16 %h3, [%d1], %h1, %h2;\n"
      "atom.global.cas.b32 %r1, [%d1+4], 6, 10;\nmov.b64 %d4, 1;\nmov.b64 %d5, 2;\n"
      "atom.relaxed.global.cas.b64 %d6, [%d1+8], %d4, %d5;\n"
      "ld.global.b128 %q0, [%d1+16];\nmov.b128 %q1, {%d4, %d5};\n"
      "atom.global.cas.b128 %q2, [%d1+16], %q0, %q1;\nst.global.b128 [%d0+16], %q2;\n"
      "cvt.u32.u16 %r2, %h3;\nst.global.v2.u32 [%d0], {%r2, %r1};\nst.global.u64 [%d0+8], %d6;\n");
  const uint64_t in = p.buffer("in", std::vector<uint32_t>{5, 7, 1, 0, 3, 4, 5, 6});
  const uint64_t out = p.buffer("out", 32);
  const auto report = p.launch(out, in, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint32_t>(out, 8), (std::vector<uint32_t>{5, 7, 1, 0, 3, 4, 5, 6}));
  EXPECT_EQ(p.read<uint32_t>(in, 8), (std::vector<uint32_t>{9, 7, 2, 0, 1, 0, 2, 0}));
}

// "atom": global f32 sums flush subnormals, shared ones do not. Measured on an H200 too.
TEST(Atomics, FloatSumsFlushSubnormalsOnlyInGlobalMemory) {
  PtxProgram p(
      "mov.b32 %f1, 0f00000005;\nred.global.add.f32 [%d1], %f1;\n"
      "mov.u32 %r2, word;\nmov.u32 %r3, 3;\nst.shared.u32 [%r2], %r3;\n"
      "red.shared.add.f32 [%r2], %f1;\nld.shared.u32 %r4, [%r2];\nst.global.u32 [%d0], %r4;\n"
      "mov.f32 %f2, 0f3F800000;\nmov.f32 %f3, 0f40000000;\n"
      "red.global.add.v2.f32 [%d1+8], {%f2, %f3};\n"
      "mov.f64 %g0, 0d3FF0000000000000;\natom.global.add.f64 %g1, [%d1+16], %g0;\n",
      {}, ".shared .align 16 .u32 word;");
  const uint64_t in =
      p.buffer("in", std::vector<float>{std::bit_cast<float>(3u), 0, 1.5f, 2.5f, 0, 0});
  const uint64_t out = p.buffer("out", 16);
  const auto report = p.launch(out, in, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint32_t>(out, 1)[0], 8u);
  EXPECT_EQ(p.read<uint32_t>(in, 1)[0], 0u);
  EXPECT_EQ(p.read<float>(in, 4)[2], 2.5f);
  EXPECT_EQ(p.read<float>(in, 4)[3], 4.5f);
  EXPECT_EQ(p.read<double>(in, 3)[2], 1.0);
}

TEST(Atomics, PackedHalvesAddElementByElement) {
  PtxProgram p(
      "mov.b32 %r1, 0x40003C00;\nred.global.add.noftz.f16x2 [%d1], %r1;\n"
      "mov.b32 %r2, 0x40003F80;\natom.global.add.noftz.bf16x2 %r3, [%d1+4], %r2;\n"
      "st.global.u32 [%d0], %r3;\n");
  const uint64_t in = p.buffer("in", std::vector<uint16_t>{0x3C00, 0x3C00, 0x3F80, 0x3F80});
  const uint64_t out = p.buffer("out", 16);
  const auto report = p.launch(out, in, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint16_t>(in, 4), (std::vector<uint16_t>{0x4000, 0x4200, 0x4000, 0x4040}));
  EXPECT_EQ(p.read<uint32_t>(out, 1)[0], 0x3F803F80u);
}

TEST(Atomics, AVectorOfResultsMayLieInTheRegistersOfTheOperands) {
  PtxProgram p(
      "mov.f32 %f1, 0f3F800000;\nmov.f32 %f2, 0f40000000;\n"
      "atom.global.add.v2.f32 {%f2, %f1}, [%d1], {%f1, %f2};\n"
      "st.global.v2.f32 [%d0], {%f2, %f1};\n");
  const uint64_t in = p.buffer("in", std::vector<float>{10, 20}), out = p.buffer("out", 16);
  const auto report = p.launch(out, in, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<float>(in, 2), (std::vector<float>{11, 22}));
  EXPECT_EQ(p.read<float>(out, 2), (std::vector<float>{10, 20}));
}

// A signalling NaN is dropped as a quiet one is.
TEST(Atomics, MinimaAndMaximaOfHalvesDropEveryNan) {
  PtxProgram p(
      "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1];\n"
      "red.global.v2.f16x2.min.noftz [%d0], {%r1, %r1};\n"
      "red.global.v2.f16x2.max.noftz [%d0+8], {%r2, %r2};\n"
      "red.global.v2.bf16x2.min.noftz [%d0+16], {%r3, %r3};\n"
      "red.global.v2.bf16x2.max.noftz [%d0+24], {%r4, %r4};\n");
  const std::vector<uint16_t> halves{0x7C01, 0x3C00, 0xFC01, 0x3C00,
                                     0x7F81, 0x3F80, 0xFF81, 0x3F80};
  std::vector<uint16_t> old;
  for (size_t i = 0; i < halves.size(); i += 2) {
    // What stands there is the number where the NaN comes, and the NaN where the number comes.
    for (int twice = 0; twice < 2; ++twice) {
      old.push_back(halves[i + 1]);
      old.push_back(halves[i]);
    }
  }
  const uint64_t in = p.buffer("in", halves), out = p.buffer("out", old);
  const auto report = p.launch(out, in, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  const auto got = p.read<uint16_t>(out, 16);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(got[i], i < 8 ? 0x3C00 : 0x3F80) << i;
}

}  // namespace
}  // namespace ptxemu
