// Reads of what nobody has written: memory, and registers.
#include "checked_program.h"

namespace ptxemu {
namespace {

// --- Memory -------------------------------------------------------------------------------------

TEST(Uninitialised, SharedMemory) {
  const std::string load = "ld.shared.u32 %r2, [cell];\nst.global.u32 [%d0], %r2;\n";
  const std::string head = ".shared .u32 cell;\n";
  PtxProgram reads(load, checked(), head);
  auto report = reads.launch(reads.buffer("out", 16), 0, 1);
  EXPECT_EQ(severity(report, "uninitialised-read"), "error") << text_of(report);
  PtxProgram half("mov.u16 %h1, 1;\nst.shared.u16 [cell], %h1;\n" + load, checked(), head);
  report = half.launch(half.buffer("out", 16), 0, 1);
  EXPECT_EQ(severity(report, "uninitialised-read"), "error") << text_of(report);
  PtxProgram writes("st.shared.u32 [cell], 1;\n" + load, checked(), head);
  report = writes.launch(writes.buffer("out", 16), 0, 1);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

TEST(Uninitialised, AValueThatNobodyUsesIsNoFinding) {
  const std::string load =
      "ld.shared.u32 %r2, [cell];\nadd.u32 %r3, %r2, 1;\nshl.b32 %r4, %r3, 2;\n";
  const std::string head = ".shared .u32 cell;\n";
  PtxProgram unused(load, checked(), head);
  auto report = unused.launch(unused.buffer("out", 16), 0, 1);
  EXPECT_EQ(report.status, "ok") << text_of(report);
  PtxProgram decides(load + "setp.eq.u32 %p0, %r4, 0;\n@%p0 st.global.u32 [%d0], 1;\n", checked(),
                     head);
  report = decides.launch(decides.buffer("out", 16), 0, 1);
  EXPECT_EQ(severity(report, "uninitialised-read"), "error") << text_of(report);
  PtxProgram replaced(load + "mov.u32 %r4, 5;\nst.global.u32 [%d0], %r4;\n", checked(), head);
  report = replaced.launch(replaced.buffer("out", 16), 0, 1);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

TEST(Uninitialised, GlobalBuffers) {
  const std::string body = "ld.global.u32 %r2, [%d1];\nst.global.u32 [%d0], %r2;\n";
  PtxProgram p(body, checked());
  const uint64_t out = p.buffer("out", 16), in = p.buffer("in", 16);
  EXPECT_EQ(p.launch(out, in, 1).status, "ok");  // nobody has said that it holds nothing
  p.machine().mark_uninitialised(in);
  const auto report = p.launch(out, in, 1);
  EXPECT_EQ(severity(report, "uninitialised-read"), "error") << text_of(report);
  EXPECT_NE(report.findings[0].object.find("in"), std::string::npos);
  p.machine().fill(in, 0, 16);
  EXPECT_EQ(p.launch(out, in, 1).status, "ok");
}

TEST(Uninitialised, ALaunchMayReadWhatAnEarlierOneWrote) {
  PtxProgram p("st.global.u32 [%d0], %r0;\nld.global.u32 %r2, [%d1];\n", checked());
  const uint64_t a = p.buffer("a", 4), b = p.buffer("b", std::vector<uint32_t>{7});
  p.machine().mark_uninitialised(a);
  EXPECT_EQ(p.launch(a, b, 1).status, "ok");
  EXPECT_EQ(p.launch(b, a, 1).status, "ok");
}

TEST(Uninitialised, OfAVectorOnlyThePartsThatAreUsedCount) {
  const std::string load =
      "st.shared.v2.u32 [cells], {1, 2};\nld.shared.v4.u32 {%r2, %r3, %r4, _}, [cells];\n";
  const std::string head = ".shared .align 16 .u32 cells[4];\n";
  PtxProgram written(load + "add.u32 %r3, %r3, %r2;\nst.global.u32 [%d0], %r3;\n", checked(), head);
  auto report = written.launch(written.buffer("out", 16), 0, 1);
  EXPECT_EQ(report.status, "ok") << text_of(report);
  PtxProgram third(load + "st.global.u32 [%d0], %r4;\n", checked(), head);
  report = third.launch(third.buffer("out", 16), 0, 1);
  EXPECT_EQ(severity(report, "uninitialised-read"), "error") << text_of(report);
}

TEST(Uninitialised, ALoadMayReplaceItsOwnAddress) {
  PtxProgram p("add.u64 %d2, %d1, 8;\nld.global.u64 %d2, [%d2];\nst.global.u64 [%d0], %d2;\n",
               checked());
  const uint64_t in = p.buffer("in", std::vector<uint64_t>{1, 2});
  const auto report = p.launch(p.buffer("out", 16), in, 1);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

// --- Registers ----------------------------------------------------------------------------------

// The finding for a kernel with this body, or "".
std::string unwritten(const std::string& body, uint32_t threads = 32, const char* head = "") {
  PtxProgram p(body, checked(), head);
  const auto report = p.launch(p.buffer("out", 1024), p.buffer("in", 1024), threads);
  if (report.status == "ok") return "";
  EXPECT_EQ(severity(report, "uninitialised-read"), "error") << body << text_of(report);
  EXPECT_EQ(report.findings.size(), 1u) << body << text_of(report);
  return report.findings.at(0).object;
}

TEST(UnwrittenRegister, MattersWhereItIsUsed) {
  EXPECT_EQ(unwritten("st.global.u32 [%d0], %r9;\n"), "%r9");
  EXPECT_EQ(unwritten("and.b64 %d9, %d9, 0x8;\nadd.u64 %d2, %d0, %d9;\nst.global.u32 [%d2], 1;\n"),
            "%d9");
  EXPECT_EQ(unwritten("@%p9 st.global.u32 [%d0], 1;\n"), "%p9");
  EXPECT_EQ(unwritten("@!%p9 st.global.u32 [%d0], 1;\n"), "%p9");  // it happens not to be taken
  EXPECT_EQ(unwritten("setp.gt.u32 %p2, %r9, 7;\n@%p2 bra end;\nend:\n"), "%r9");
  EXPECT_EQ(unwritten("mov.u32 %r2, cell;\nor.b32 %r3, %r9, 1;\nand.b32 %r3, %r3, 7;\n"
                      "mbarrier.init.shared.b64 [%r2], %r3;\n",
                      1, ".shared .align 8 .b64 cell;\n"),
            "%r9");
  EXPECT_EQ(unwritten("and.b32 %r3, %r9, 7;\nbar.sync %r3, 32;\n"), "%r9");
}

TEST(UnwrittenRegister, GoesThroughCopiesAndArithmetic) {
  EXPECT_EQ(unwritten("mov.u32 %r2, %r9;\nadd.u32 %r3, %r2, 5;\nmul.lo.u32 %r3, %r3, 3;\n"
                      "st.global.u32 [%d0], %r3;\n"),
            "%r9");
  EXPECT_EQ(unwritten("fma.rn.f32 %f1, %f9, %f9, %f9;\nex2.approx.f32 %f2, %f1;\n"
                      "st.global.f32 [%d0], %f2;\n"),
            "%f9");
  EXPECT_EQ(unwritten("mov.b64 %d2, {%r0, %r9};\nmov.b64 {%r2, %r3}, %d2;\n"
                      "st.global.u32 [%d0], %r3;\n"),
            "%r9");
  EXPECT_EQ(unwritten("shfl.sync.idx.b32 %r2, %r9, 0, 31, -1;\nst.global.u32 [%d0], %r2;\n"),
            "%r9");
}

// Whatever the operand with a value is, the other one may decide.
TEST(UnwrittenRegister, GoesThroughMinMaxAndSaturation) {
  const auto store = [](const char* statement, const char* type, const char* result) {
    return std::string(statement) + ";\nst.global." + type + " [%d0], " + result + ";\n";
  };
  for (const char* f32 : {"max.f32 %f1, %f9, 0f40000000", "max.f32 %f1, 0f40000000, %f9",
                          "max.f32 %f1, %f9, 0f7f7fffff", "max.ftz.NaN.f32 %f1, %f9, 0f40000000",
                          "min.f32 %f1, %f9, 0fbf800000", "min.f32 %f1, %f9, 0fff7fffff",
                          "sub.sat.f32 %f1, %f9, 0f40000000", "add.sat.f32 %f1, %f9, 0fc0000000",
                          "max.f32 %f1, %f9, %f8, 0f40000000", "cvt.sat.f32.f32 %f1, %f9"}) {
    EXPECT_EQ(unwritten(store(f32, "f32", "%f1")).substr(0, 2), "%f") << f32;
  }
  for (const char* b32 :
       {"mov.b32 %r1, 0x40004000;\nmax.f16x2 %r2, %r9, %r1",
        "mov.b32 %r1, 0xfbfffbff;\nmin.f16x2 %r2, %r9, %r1",
        "mov.b32 %r1, 0x40004000;\nmax.bf16x2 %r2, %r9, %r1",
        "mov.b32 %r1, 0xff7fff7f;\nmin.bf16x2 %r2, %r9, %r1", "max.s32 %r2, %r9, 0x7ffffffe",
        "min.s32 %r2, %r9, -5", "max.u32 %r2, %r9, 0xfffffffe",
        "mov.b32 %r1, 0x7ffe7ffe;\nmax.s16x2 %r2, %r9, %r1",
        "mov.b32 %r1, 0x80018001;\nmin.s16x2 %r2, %r9, %r1", "add.sat.s32 %r2, %r9, 0x80000000",
        "sub.sat.s32 %r2, %r9, 0x7fffffff", "mul.hi.s32 %r2, %r9, 2"}) {
    EXPECT_EQ(unwritten(store(b32, "b32", "%r2")), "%r9") << b32;
  }
  for (const char* b64 :
       {"max.s64 %d2, %d9, 0x7ffffffffffffffe", "min.s64 %d2, %d9, -5",
        "max.f64 %d2, %d9, 0d7fefffffffffffff", "max.f64 %d2, 0d4000000000000000, %d9"}) {
    EXPECT_EQ(unwritten(store(b64, "b64", "%d2")), "%d9") << b64;
  }
  // All bits of a number that a conversion makes are open, not the lowest alone.
  EXPECT_EQ(unwritten("cvt.rzi.s32.f32 %r2, %f9;\nand.b32 %r2, %r2, 0xffff0000;\n"
                      "st.global.u32 [%d0], %r2;\n"),
            "%f9");
  // Two such registers need not hold the same.
  EXPECT_NE(unwritten("sub.u32 %r2, %r8, %r9;\nst.global.u32 [%d0], %r2;\n"), "");
  EXPECT_NE(unwritten("xor.b32 %r2, %r8, %r9;\nst.global.u32 [%d0], %r2;\n"), "");
}

// By an amount, a position or a selector that nobody has written any bit may come anywhere.
TEST(UnwrittenRegister, SaysWhereBitsGo) {
  for (const char* statement :
       {"shl.b32 %r2, %r1, %r9", "shr.u32 %r2, 0x80000000, %r9", "shf.l.wrap.b32 %r2, 0, %r1, %r9",
        "bfe.u32 %r2, 0x200, %r9, 1", "bfe.u32 %r2, 0x200, 0, %r9", "bfi.b32 %r2, %r1, 0, %r9, 1",
        "bfi.b32 %r2, -1, 0, 9, %r9", "prmt.b32 %r2, %r1, 0, %r9"}) {
    EXPECT_EQ(unwritten("mov.b32 %r1, 1;\n" + std::string(statement) +
                        ";\nand.b32 %r2, %r2, 0x200;\nst.global.u32 [%d0], %r2;\n"),
              "%r9")
        << statement;
  }
  // What it takes of the register is known, or there is nothing to move.
  EXPECT_EQ(unwritten("mov.b32 %r2, 0x10;\nbfi.b32 %r3, %r9, %r2, 16, 16;\n"
                      "mov.b32 %r1, 0x12345678;\nprmt.b32 %r4, %r1, 0, %r3;\n"
                      "shl.b32 %r5, 0, %r9;\nst.global.v2.u32 [%d0], {%r4, %r5};\n"),
            "");
}

TEST(UnwrittenRegister, BehindMinMaxAndSaturationThatDecideIsNoFinding) {
  for (const char* statement :
       {"max.u32 %r2, %r9, 0xffffffff", "min.u32 %r2, %r9, 0", "max.s32 %r2, %r9, 0x7fffffff",
        "min.s32 %r2, %r9, 0x80000000", "mul.lo.u32 %r2, %r9, 0", "sub.u32 %r2, %r9, %r9",
        "xor.b32 %r2, %r9, %r9", "cvt.sat.u8.s32 %r2, %r0"}) {
    EXPECT_EQ(unwritten(std::string(statement) + ";\nst.global.u32 [%d0], %r2;\n"), "")
        << statement;
  }
}

// Of a wider register a store takes the lowest bytes.
TEST(UnwrittenRegister, OfWhichOnlyBytesAreStored) {
  const std::string load = "st.shared.u8 [cell], 1;\nld.shared.u32 %r2, [cell];\n";
  const char* head = ".shared .align 4 .b8 cell[4];\n";
  EXPECT_EQ(unwritten(load + "st.global.u8 [%d0], %r2;\n", 32, head), "");
  EXPECT_NE(unwritten(load + "st.global.u16 [%d0], %r2;\n", 32, head), "");
  EXPECT_NE(unwritten(load + "shr.u32 %r2, %r2, 8;\nst.global.u8 [%d0], %r2;\n", 32, head), "");
  EXPECT_EQ(unwritten(load + "st.global.v2.u8 [%d0], {%r2, %r2};\n", 32, head), "");
  EXPECT_EQ(unwritten("st.global.u8 [%d0], %r9;\n"), "%r9");
}

TEST(UnwrittenRegister, IsFoundByLaneAndByWayThroughTheText) {
  const std::string by_lane =
      "setp.lt.u32 %p1, %r0, 8;\n@%p1 mov.u32 %r9, 3;\n$\nshl.b32 %r2, %r0, 2;\n"
      "cvt.u64.u32 %d2, %r2;\nadd.u64 %d2, %d0, %d2;\n@%p2 st.global.u32 [%d2], %r9;\n";
  const auto storing = [&](const char* lanes) {
    std::string text = by_lane;
    return text.replace(text.find('$'), 1, lanes);
  };
  EXPECT_EQ(unwritten(storing("setp.lt.u32 %p2, %r0, 8;")), "");
  EXPECT_EQ(unwritten(storing("setp.lt.u32 %p2, %r0, 9;")), "%r9");
  const std::string by_way =
      "setp.eq.u32 %p1, %r0, 40;\n@%p1 bra skip;\nmov.u32 %r9, 1;\nskip: "
      "@%p1 st.global.u32 [%d0], %r9;\n";
  EXPECT_EQ(unwritten(by_way), "");
  EXPECT_EQ(unwritten(by_way, 64), "%r9");
  // The second time round it has a value.
  EXPECT_EQ(unwritten("mov.u32 %r2, 0;\nagain: setp.eq.u32 %p1, %r2, 0;\n@%p1 bra first;\n"
                      "st.global.u32 [%d0], %r9;\nfirst: add.u32 %r9, %r2, 1;\n"
                      "add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, 3;\n@%p2 bra again;\n"),
            "");
}

TEST(UnwrittenRegister, ThatDoesNotMatterIsNoFinding) {
  EXPECT_EQ(unwritten("mov.u32 %r2, %r9;\nadd.u32 %r3, %r2, 1;\nsetp.eq.u32 %p2, %r3, 0;\n"), "");
  // Halves and bits that nobody looks at.
  EXPECT_EQ(unwritten("mov.b64 %d2, {%r0, %r9};\ncvt.u32.u64 %r2, %d2;\n"
                      "st.global.u32 [%d0], %r2;\n"),
            "");
  EXPECT_EQ(unwritten("mov.b64 %d2, {%r0, %r9};\nmul.rn.f32x2 %d3, %d2, %d2;\n"
                      "mov.b64 {%r2, %r3}, %d3;\nst.global.u32 [%d0], %r2;\n"),
            "");
  EXPECT_EQ(unwritten("prmt.b32 %r2, %r0, %r9, 0x3210;\nbfi.b32 %r3, %r0, %r9, 0, 32;\n"
                      "and.b32 %r4, %r9, 0;\nst.global.v4.u32 [%d0], {%r2, %r3, %r4, %r0};\n"),
            "");
  EXPECT_EQ(unwritten("setp.lt.u32 %p1, %r0, 32;\nselp.b32 %r2, %r0, %r9, %p1;\n"
                      "st.global.u32 [%d0], %r2;\n"),
            "");
  // A value of one lane that all get.
  EXPECT_EQ(unwritten("setp.eq.u32 %p1, %r0, 3;\n@%p1 mov.u32 %r9, 8;\n"
                      "shfl.sync.idx.b32 %r2, %r9, 3, 31, -1;\nst.global.u32 [%d0], %r2;\n"),
            "");
  // What a function is given need not be what it reads; what it returns is written.
  EXPECT_EQ(
      unwritten("call (%r2), first, (%r0, %r9);\nst.global.u32 [%d0], %r2;\n", 32,
                ".func (.reg .b32 d) first(.reg .b32 a, .reg .b32 b) { mov.b32 d, a; ret; }\n"),
      "");
}

TEST(UnwrittenRegister, OfAFunctionIsNewInEveryCall) {
  const char* head =
      ".func (.reg .b32 d) small(.reg .b32 a) { .reg .pred %p; .reg .b32 %x;\n"
      "setp.lt.u32 %p, a, 5; @%p mov.b32 %x, 1; mov.b32 d, %x; ret; }\n"
      ".func store(.reg .b64 to, .reg .b32 a) { .reg .pred %p; .reg .b32 %x;\n"
      "setp.lt.u32 %p, a, 5; @%p mov.b32 %x, 1; st.global.b32 [to], %x; ret; }\n";
  const std::string calls =
      "mov.u32 %r3, 3;\nmov.u32 %r4, 7;\ncall (%r2), small, (%r3);\n"
      "st.global.u32 [%d0], %r2;\ncall store, (%d0, %r3);\n";
  EXPECT_EQ(unwritten(calls, 1, head), "");
  EXPECT_EQ(unwritten(calls + "call store, (%d0, %r4);\n", 1, head), "%x");
}

TEST(UnwrittenRegister, AccumulatorsThatAProductReplacesAreNoFinding) {
  const auto run = [](const char* adds) {
    const std::string body =
        "mov.u32 %r1, tile;\nst.shared.u32 [tile], 0;\nmov.b64 %d2, 0x4000000000000040;\n"
        "setp.ne.u32 %p1, " +
        std::string(adds) +
        ", 0;\nwgmma.fence.sync.aligned;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d2, %d2, %p1, "
        "1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
        "st.global.f32 [%d0], %f1;\n";
    PtxProgram p(body, checked("eager", "emulated:h200"), ".shared .align 1024 .b32 tile[1024];\n",
                 "sm_90a");
    const auto report = p.launch(p.buffer("out", 16), 0, 128);
    for (const auto& f : report.findings) {
      if (f.object == "%f1") return f.severity;
    }
    return std::string();
  };
  EXPECT_EQ(run("0"), "");
  EXPECT_EQ(run("1"), "error");
}

}  // namespace
}  // namespace ptxemu
