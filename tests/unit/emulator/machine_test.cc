// How warps run: lanes that part and meet, barriers, calls, deadlocks; and what the checker says.
#include <algorithm>

#include "ptx_program.h"

namespace ptxemu {
namespace {

MachineOptions checked(const char* policy = "eager", uint64_t seed = 1) {
  MachineOptions options;
  options.policy = policy;
  options.seed = seed;
  options.check = true;
  return options;
}

bool has_rule(const LaunchReport& report, const std::string& rule, const std::string& severity) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const auto& f) { return f.rule == rule && f.severity == severity; });
}

constexpr const char* kStoreR5 =
    "mul.wide.u32 %d2, %r0, 4;\nadd.u64 %d2, %d0, %d2;\nst.global.u32 [%d2], %r5;\n";

TEST(Lanes, PartAtABranchAndMeetAgain) {
  PtxProgram p(
      std::string("and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p0, %r1, 0;\nmov.u32 %r5, 0;\n"
                  "@%p0 bra even;\nmov.u32 %r5, 100;\nbra.uni meet;\neven: mov.u32 %r5, 200;\n"
                  "meet: activemask.b32 %r6;\nsetp.ne.u32 %p1, %r6, -1;\n@%p1 mov.u32 %r5, 1;\n") +
      kStoreR5);
  const uint64_t out = p.buffer("out", 128);
  ASSERT_EQ(p.launch(out).status, "ok");
  const auto got = p.read<uint32_t>(out, 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], i % 2 == 0 ? 200u : 100u);
}

TEST(Lanes, LeaveALoopOneByOne) {
  PtxProgram p(std::string("mov.u32 %r5, 0;\nmov.u32 %r1, 0;\nloop: add.u32 %r5, %r5, %r1;\n"
                           "add.u32 %r1, %r1, 1;\nsetp.le.u32 %p0, %r1, %r0;\n@%p0 bra loop;\n") +
               kStoreR5);
  const uint64_t out = p.buffer("out", 128);
  ASSERT_EQ(p.launch(out).status, "ok");
  const auto got = p.read<uint32_t>(out, 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], i * (i + 1) / 2);
}

TEST(Lanes, ASpinningLaneDoesNotStarveItsSibling) {
  PtxProgram p(
      "setp.eq.u32 %p0, %r0, 0;\n@%p0 bra waits;\nst.volatile.global.u32 [%d0], 7;\nbra.uni end;\n"
      "waits: ld.volatile.global.u32 %r1, [%d0];\nsetp.ne.u32 %p1, %r1, 7;\n@%p1 bra waits;\n"
      "end: st.global.u32 [%d0+4], %r0;\n");
  const uint64_t out = p.buffer("out", std::vector<uint32_t>{0, 99});
  EXPECT_EQ(p.launch(out).status, "ok");
}

TEST(Lanes, ReturnFromAFunctionWithTheirOwnResults) {
  PtxProgram p(std::string("{ .param .b32 a; .param .b32 r;\nst.param.b32 [a], %r0;\n"
                           "call.uni (r), twice, (a);\nld.param.b32 %r5, [r];\n}\n") +
                   kStoreR5,
               {},
               ".func (.param .b32 r) twice(.param .b32 a)\n{\n.reg .b32 %x<3>;\n.reg .pred %q;\n"
               "ld.param.b32 %x0, [a];\nshl.b32 %x1, %x0, 1;\nsetp.lt.u32 %q, %x0, 16;\n"
               "st.param.b32 [r], %x1;\n@%q ret;\nadd.u32 %x1, %x1, 1000;\nst.param.b32 [r], "
               "%x1;\nret;\n}\n");
  const uint64_t out = p.buffer("out", 128);
  const auto report = p.launch(out);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  const auto got = p.read<uint32_t>(out, 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], 2 * i + (i < 16 ? 0 : 1000));
}

// ".alias" (PTX ISA 11.6): the name of another function.
TEST(Lanes, CallAFunctionByItsAlias) {
  PtxProgram p(
      "call (%r1), other, (%r0);\nmad.wide.u32 %d2, %r0, 4, %d0;\nst.global.u32 [%d2], %r1;\n", {},
      ".func (.reg .b32 o) other(.reg .b32 i);\n"
      ".func (.reg .b32 o) more(.reg .b32 i) { add.u32 o, i, 100; ret; }\n.alias other, more;\n");
  const uint64_t out = p.buffer("out", 128);
  const auto report = p.launch(out);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint32_t>(out, 32)[31], 131u);
}

TEST(Lanes, ShuffleAndVote) {
  PtxProgram p(std::string("shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\nsetp.lt.u32 %p0, %r0, 5;\n"
                           "vote.sync.ballot.b32 %r2, %p0, -1;\nadd.u32 %r5, %r1, %r2;\n") +
               kStoreR5);
  const uint64_t out = p.buffer("out", 128);
  ASSERT_EQ(p.launch(out).status, "ok");
  const auto got = p.read<uint32_t>(out, 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], (i ^ 1) + 31);
}

constexpr const char* kShared = ".shared .align 16 .b32 words[128];\n";
// Every thread stores a word, and loads that of the thread 32 further on.
std::string neighbour(const char* between) {
  return std::string(
             "mov.u32 %r1, words;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r3, %r1, %r2;\n"
             "st.shared.u32 [%r3], %r0;\n") +
         between +
         "add.u32 %r4, %r2, 128;\nand.b32 %r4, %r4, 511;\nadd.u32 %r4, %r4, %r1;\n"
         "ld.shared.u32 %r5, [%r4];\n" +
         kStoreR5;
}

// Two groups of lanes come to the vote one after the other, each with some whose guard is false.
TEST(Lanes, ThatAGuardHoldsBackTakeNoPartInAVote) {
  for (const char* guard : {"@%p3", "@!%p4"}) {
    PtxProgram p(
        "mov.u32 %r1, 0;\nand.b32 %r2, %r0, 8;\nsetp.eq.u32 %p3, %r2, 0;\n"
        "not.pred %p4, %p3;\nsetp.lt.u32 %p1, %r0, 16;\nsetp.eq.u32 %p2, %r0, 99;\n"
        "@%p1 bra some;\n@%p2 bra end;\nbra vote;\nsome: add.u32 %r2, %r2, 1;\nvote: " +
        std::string(guard) +
        " vote.sync.ballot.b32 %r1, 1, 0x00ff00ff;\nend: mad.wide.u32 %d2, %r0, 4, %d0;\n"
        "st.global.u32 [%d2], %r1;\n");
    const uint64_t out = p.buffer("out", 128);
    const auto report = p.launch(out);
    ASSERT_EQ(report.status, "ok") << text_of(report);
    const auto got = p.read<uint32_t>(out, 32);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(got[lane], (lane & 8) == 0 ? 0x00ff00ffu : 0u) << guard << lane;
    }
  }
}

TEST(Lanes, KnowWhetherTheirCtaIsOneOfACluster) {
  for (const uint32_t ctas : {1u, 2u}) {
    PtxProgram p(
        "mov.pred %p1, %is_explicit_cluster;\nselp.b32 %r1, 1, 0, %p1;\n"
        "st.global.u32 [%d0], %r1;\n");
    const uint64_t out = p.buffer("out", 4);
    const auto report = p.launch(out, 0, 1, ctas, ctas);
    ASSERT_EQ(report.status, "ok") << text_of(report);
    EXPECT_EQ(p.read<uint32_t>(out, 1)[0], ctas - 1);
  }
}

TEST(Checker, FindsARaceBetweenWarpsUnderEveryPolicy) {
  for (const char* policy : {"eager", "late", "random", "split"}) {
    PtxProgram p(neighbour(""), checked(policy), kShared);
    const auto report = p.launch(p.buffer("out", 512), 0, 128);
    EXPECT_TRUE(has_rule(report, "shared-race", "error")) << policy << text_of(report);
    EXPECT_FALSE(report.passed());
  }
}

TEST(Checker, IsSilentWhenABarrierOrders) {
  for (const char* policy : {"eager", "late", "random", "split"}) {
    PtxProgram p(neighbour("bar.sync 0;\n"), checked(policy), kShared);
    const uint64_t out = p.buffer("out", 512);
    const auto report = p.launch(out, 0, 128);
    EXPECT_EQ(report.status, "ok") << policy << text_of(report);
    EXPECT_EQ(p.read<uint32_t>(out, 128)[0], 32u);
  }
}

TEST(Checker, AsksForAProxyFenceBeforeACopyOut) {
  const auto body = [](const char* fence) {
    return std::string(
               "mov.u32 %r1, words;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r3, %r1, %r2;\n"
               "st.shared.u32 [%r3], %r0;\n") +
           fence +
           "bar.sync 0;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra end;\n"
           "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 512;\n"
           "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nend:\n";
  };
  PtxProgram without(body(""), checked(), kShared);
  const auto bad = without.launch(without.buffer("out", 512), 0, 128);
  EXPECT_TRUE(has_rule(bad, "missing-proxy-fence", "error")) << text_of(bad);
  PtxProgram with(body("fence.proxy.async.shared::cta;\n"), checked(), kShared);
  const auto good = with.launch(with.buffer("out", 512), 0, 128);
  EXPECT_EQ(good.status, "ok") << text_of(good);
}

TEST(Deadlock, NamesTheBarrierAndWhatIsMissing) {
  PtxProgram p("setp.lt.u32 %p0, %r0, 32;\n@%p0 bra end;\nbar.sync 3, 64;\nend:\n");
  const auto report = p.launch(p.buffer("out", 4), 0, 64);
  ASSERT_EQ(report.status, "deadlock") << text_of(report);
  ASSERT_EQ(report.deadlock.size(), 1u);
  EXPECT_EQ(report.deadlock[0].warp, 1u);
  EXPECT_EQ(report.deadlock[0].waits_on, "barrier 3 of 64 threads");
  EXPECT_EQ(report.deadlock[0].pending, 32);
}

TEST(Traps, NameTheAddressAndTheLine) {
  PtxProgram p("st.global.u32 [%d0+4096], %r0;\n");
  const auto report = p.launch(p.buffer("out", 64));
  ASSERT_EQ(report.status, "trap");
  EXPECT_EQ(report.findings[0].rule, "out-of-bounds");
  EXPECT_NE(report.findings[0].message.find("out"), std::string::npos) << text_of(report);
  EXPECT_GT(report.findings[0].ptx_line, 0u);
}

TEST(Policies, GiveTheSameBitsForOneSeed) {
  for (const char* policy : {"random", "split"}) {
    PtxProgram p(
        "atom.global.add.u32 %r1, [%d0], 1;\nmad.wide.u32 %d2, %r1, 4, %d0;\n"
        "st.global.u32 [%d2+4], %r0;\n",
        checked(policy, 5));
    std::vector<uint32_t> first;
    for (int run = 0; run < 2; ++run) {
      const uint64_t out = p.buffer("out", std::vector<uint32_t>(257, 0));
      ASSERT_EQ(p.launch(out, 0, 128, 2).status, "ok");
      const auto got = p.read<uint32_t>(out, 257);
      if (run == 0) first = got;
      EXPECT_EQ(got, first) << policy;
    }
  }
}

// --- Modules ------------------------------------------------------------------------------------

TEST(Modules, TablesHoldAddressesOfVariablesAndFunctions) {
  const char* head =
      ".global .align 8 .u64 nothing;\n"
      ".func (.reg .b32 d) twice(.reg .b32 a) { add.u32 d, a, a; ret; }\n"
      ".func (.reg .b32 d) thrice(.reg .b32 a) { mul.lo.u32 d, a, 3; ret; }\n"
      ".global .align 8 .u64 table[3] = {twice, thrice, nothing};\n"
      ".global .align 8 .u64 tables[1] = {table};\n"
      ".global .align 8 .b8 bytes[8] = {0xFF(nothing), 0xFF00(nothing), 0xFF0000(nothing), "
      "0xFF000000(nothing), 0xFF00000000(nothing), 0xFF0000000000(nothing), "
      "0xFF000000000000(nothing), 0xFF00000000000000(nothing)};\n";
  PtxProgram p(
      "ld.global.u64 %d2, [tables];\nand.b32 %r1, %r0, 1;\nmad.wide.u32 %d3, %r1, 8, %d2;\n"
      "ld.global.u64 %d4, [%d3];\nproto: .callprototype (.reg .b32 _) _ (.reg .b32 _);\n"
      "call (%r2), %d4, (%r0), proto;\nmad.wide.u32 %d5, %r0, 4, %d0;\n"
      "st.global.u32 [%d5], %r2;\nld.global.u64 %d6, [bytes];\nmov.u64 %d7, nothing;\n"
      "sub.u64 %d6, %d6, %d7;\nld.global.u64 %d8, [table+16];\nsub.u64 %d8, %d8, %d7;\n"
      "or.b64 %d6, %d6, %d8;\nst.global.u64 [%d1], %d6;\n",
      checked(), head);
  const uint64_t out = p.buffer("out", 128), in = p.buffer("in", std::vector<uint64_t>{1});
  const auto report = p.launch(out, in);
  ASSERT_TRUE(report.passed()) << text_of(report);
  const auto values = p.read<uint32_t>(out, 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], i * (i % 2 == 0 ? 2 : 3)) << i;
  EXPECT_EQ(p.read<uint64_t>(in, 1)[0], 0u);
}

TEST(Modules, SayWhatTheirKernelsNeed) {
  Machine machine;
  const ModuleHandle module = machine.load(
      ".version 8.8\n.target sm_100a\n.address_size 64\n.shared .align 16 .b8 tile[96];\n"
      ".visible .entry k(.param .u32 a, .param .u64 b) .maxntid 192 .minnctapersm 2\n"
      "{ .reg .b32 %r; .local .align 4 .b8 own[8]; mov.u32 %r, tile; ret; }\n");
  const KernelFacts facts = machine.facts(module, "k");
  EXPECT_EQ(facts.static_shared_bytes, 96u);
  EXPECT_EQ(facts.max_threads, 192u);
  EXPECT_EQ(facts.registers, 168u);  // 65536 / 384, a multiple of eight
  EXPECT_EQ(facts.parameter_offsets, (std::vector<uint32_t>{0, 8}));
}

}  // namespace
}  // namespace ptxemu
