// Corners of single instructions, each by the manual's sentence about it.
#include "checked_program.h"

namespace ptxemu {
namespace {

constexpr const char* kOneLane = "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\n";

TEST(Atomics, SumsInGlobalMemoryFlushSubnormalNumbersUnlessNoftz) {
  PtxProgram p(std::string(kOneLane) +
               "mov.b32 %f1, 0f00000100;\natom.global.add.noftz.f32 %f2, [%d0], %f1;\n"
               "red.global.add.noftz.f32 [%d0+4], %f1;\nred.global.add.f32 [%d0+8], %f1;\n");
  const uint64_t out = p.buffer("out", std::vector<uint32_t>{0, 0, 0});
  ASSERT_EQ(p.launch(out).status, "ok");
  EXPECT_EQ(p.read<uint32_t>(out, 3), (std::vector<uint32_t>{0x100, 0x100, 0}));
}

TEST(Atomics, NoftzIsForSumsOfFloatsOnly) {
  for (const char* form :
       {"add.noftz.u32 [%d0], %r0", "min.noftz.s32 [%d0], %r0", "add.noftz.f64 [%d0], %g0"}) {
    const auto run = [&] {
      PtxProgram p(std::string("red.global.") + form + ";\n");
      p.launch(p.buffer("out", 128));
    };
    EXPECT_THROW(run(), InputError) << form;
  }
}

TEST(Predicates, MayBeTurnedOverWhereTheyAreOperands) {
  PtxProgram p(
      "and.b32 %r1, %r0, 1;\nsetp.ne.u32 %p1, %r1, 0;\nand.b32 %r2, %r0, 2;\n"
      "setp.ne.u32 %p2, %r2, 0;\nmov.pred %p3, !%p1;\nand.pred %p4, %p1, !%p2;\n"
      "or.pred %p5, !%p1, !%p2;\nxor.pred %p6, !%p1, %p2;\nnot.pred %p7, !%p1;\nmov.u32 %r3, 0;\n"
      "@%p3 or.b32 %r3, %r3, 1;\n@%p4 or.b32 %r3, %r3, 2;\n@%p5 or.b32 %r3, %r3, 4;\n"
      "@%p6 or.b32 %r3, %r3, 8;\n@%p7 or.b32 %r3, %r3, 16;\nmul.wide.u32 %d2, %r0, 4;\n"
      "add.u64 %d2, %d2, %d0;\nst.global.u32 [%d2], %r3;\n");
  const uint64_t out = p.buffer("out", std::vector<uint32_t>(32));
  const auto report = p.launch(out);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint32_t>(out, 4),
            (std::vector<uint32_t>{1 | 4 | 8, 2 | 4 | 16, 1 | 4, 8 | 16}));
}

constexpr const char* kTile = ".shared .align 128 .b8 tile[128];\n.shared .align 8 .b64 bar;\n";

TEST(BulkCopy, OfNoBytesIsOverLikeAnyOther) {
  for (const char* policy : {"eager", "late", "random", "split"}) {
    PtxProgram p(std::string(kOneLane) +
                     "mov.u32 %r1, tile;\nmov.u32 %r2, bar;\nmov.u32 %r3, 0;\n"
                     "mbarrier.init.shared.b64 [%r2], 1;\n"
                     "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], %r3;\n"
                     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n"
                     "cp.async.bulk.wait_group 0;\n"
                     "mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 0;\n"
                     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%r1], [%d0], %r3, [%r2];\n"
                     "wait: mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;\n@!%p1 bra wait;\n",
                 checked(policy), kTile);
    const auto report = p.launch(p.buffer("out", std::vector<uint32_t>(32)));
    EXPECT_TRUE(report.passed()) << policy << text_of(report);
  }
}

std::string multicast_program(const char* copy) {
  return std::string(kOneLane) +
         "mov.u32 %r1, tile;\nmov.u32 %r2, bar;\nmov.u16 %h0, 0xF1;\n"
         "mbarrier.init.shared.b64 [%r2], 1;\nfence.mbarrier_init.release.cluster;\n" +
         copy;
}

TEST(Multicast, NamesOnlyCtasOfTheCluster) {
  for (const char* instruction :
       {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%r1], [%d0], 16, [%r2], %h0;\n",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
        "[%r2], %h0;\n"}) {
    PtxProgram p(multicast_program(instruction), {}, kTile);
    const auto report = p.launch(p.buffer("out", std::vector<uint32_t>(32)), 0, 32, 2, 2);
    EXPECT_EQ(report.status, "trap") << instruction << text_of(report);
    EXPECT_EQ(severity(report, "multicast-mask"), "error") << instruction;
  }
}

TEST(Mbarrier, ADropThatLeavesNoExpectedArrivalIsAnError) {
  const auto body = [](const char* count) {
    return std::string(kOneLane) + "mov.u32 %r2, bar;\nmbarrier.init.shared.b64 [%r2], " + count +
           ";\nmbarrier.arrive_drop.shared.b64 _, [%r2];\n";
  };
  for (const char* policy : {"eager", "late"}) {
    PtxProgram none(body("1"), checked(policy), kTile);
    EXPECT_EQ(severity(none.launch(none.buffer("out", 128)), "mbarrier-dropped"), "error");
    PtxProgram one(body("2"), checked(policy), kTile);
    EXPECT_EQ(severity(one.launch(one.buffer("out", 128)), "mbarrier-dropped"), "");
  }
}

TEST(Discard, LeavesNothingOfTheData) {
  PtxProgram p(std::string(kOneLane) + "discard.global.L2 [%d0], 128;\n");
  const uint64_t out = p.buffer("out", std::vector<uint32_t>(64, 7));
  ASSERT_EQ(p.launch(out).status, "ok");
  const auto got = p.read<uint32_t>(out, 64);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], 0x7FFF7FFFu) << i;
  for (uint32_t i = 32; i < 64; ++i) EXPECT_EQ(got[i], 7u) << i;
}

TEST(Discard, IsAWriteToOtherWarps) {
  PtxProgram p(
      "shr.u32 %r1, %r0, 5;\nand.b32 %r2, %r0, 31;\nsetp.ne.u32 %p0, %r2, 0;\n@%p0 ret;\n"
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 discard.global.L2 [%d0], 128;\n"
      "@!%p1 ld.global.u32 %r3, [%d0];\n@!%p1 st.global.u32 [%d0+128], %r3;\n",
      checked());
  const auto report = p.launch(p.buffer("out", std::vector<uint32_t>(64)), 0, 64);
  EXPECT_EQ(severity(report, "global-race"), "error") << text_of(report);
}

// Products of zeros that say what they do with the collector buffer; `second` is another A.
std::string products(const std::vector<const char*>& collectors) {
  std::string text =
      "mov.u32 %r2, tile;\nmov.u32 %r3, bar;\nmov.u32 %r4, slot;\n"
      "setp.eq.u32 %p1, %r0, 0;\nsetp.lt.u32 %p2, %r0, 32;\n"
      "shl.b32 %r5, %r0, 6;\nadd.u32 %r5, %r5, %r2;\nmov.u32 %r6, 0;\n"
      "st.shared.v4.b32 [%r5], {%r6, %r6, %r6, %r6};\n"
      "st.shared.v4.b32 [%r5+16], {%r6, %r6, %r6, %r6};\n"
      "st.shared.v4.b32 [%r5+32], {%r6, %r6, %r6, %r6};\n"
      "st.shared.v4.b32 [%r5+48], {%r6, %r6, %r6, %r6};\n"
      "@%p1 mbarrier.init.shared.b64 [%r3], 1;\n@!%p2 bra allocated;\n"
      "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 32;\n"
      "allocated: fence.proxy.async.shared::cta;\nbar.sync 0;\nld.shared.u32 %r10, [%r4];\n"
      "shr.u32 %r7, %r2, 4;\ncvt.u64.u32 %d2, %r7;\nor.b64 %d3, %d2, 0x0000401000080000;\n"
      "add.u64 %d4, %d3, 64;\nsetp.ne.u32 %p3, %r0, %r0;\n";
  for (const char* collector : collectors) {
    const bool second = collector[0] == '2';
    text += std::string("@%p1 tcgen05.mma.cta_group::1.kind::f16") + (collector + second) +
            " [%r10], " + (second ? "%d4" : "%d3") + ", %d3, 0x08040010, %p3;\n";
  }
  return text +
         "@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3];\n"
         "wait: mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0;\n@!%p4 bra wait;\n"
         "tcgen05.fence::before_thread_sync;\nbar.sync 0;\n@!%p2 bra end;\n"
         "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;\nend:\n";
}

TEST(CollectorBuffer, IsUsedOnlyWhileItHoldsTheSameA) {
  constexpr const char* kMemory =
      ".shared .align 1024 .b8 tile[8192];\n.shared .align 8 .b64 bar;\n"
      ".shared .align 4 .b32 slot;\n";
  const auto said = [&](const std::vector<const char*>& collectors) {
    PtxProgram p(products(collectors), checked(), kMemory);
    const auto report = p.launch(p.buffer("out", 128), 0, 128);
    EXPECT_TRUE(report.status == "ok" || report.status == "findings") << text_of(report);
    return severity(report, "collector-empty");
  };
  const char *fill = ".collector::a::fill", *use = ".collector::a::use",
             *last = ".collector::a::lastuse";
  EXPECT_EQ(said({fill, use, use, last}), "");
  EXPECT_EQ(said({use}), "error");
  EXPECT_EQ(said({fill, last, use}), "error");
  EXPECT_EQ(said({fill, "", use}), "error");
  EXPECT_EQ(said({fill, "2.collector::a::use"}), "error");
}

TEST(CollectorBuffer, OfOneInstructionHasOneUse) {
  const auto run = [] {
    PtxProgram p(products({".collector::a::fill.collector::a::use"}), {},
                 ".shared .align 1024 .b8 tile[8192];\n.shared .align 8 .b64 bar;\n"
                 ".shared .align 4 .b32 slot;\n");
    p.launch(p.buffer("out", 128), 0, 128);
  };
  EXPECT_THROW(run(), InputError);
}

}  // namespace
}  // namespace ptxemu
