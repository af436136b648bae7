// Loops whose lanes part and meet again in every round: they take turns with the other warps, and
// an endless one ends at the limit on instructions, under every policy. And where such lanes meet.
#include <fmt/format.h>

#include <algorithm>

#include "ptx_program.h"

namespace ptxemu {
namespace {

constexpr const char* kPolicies[] = {"eager", "late", "random", "split"};

MachineOptions under(const char* policy) {
  MachineOptions options;
  options.policy = policy;
  options.max_instructions = 20'000;
  return options;
}

// Lanes 0 to 2 of every warp are those that part.
LaunchReport run(const std::string& body, const char* policy, uint32_t threads = 32) {
  PtxProgram p("and.b32 %r1, %r0, 31;\nsetp.lt.u32 %p0, %r1, 3;\n" + body, under(policy),
               ".shared .align 8 .b64 bar;\n");
  return p.launch(p.buffer("out", std::vector<uint32_t>(64, 0)), 0, threads);
}

void expect_limit(const std::string& body) {
  for (const char* policy : kPolicies) {
    const LaunchReport report = run(body, policy);
    EXPECT_EQ(report.status, "trap") << policy << body;
    ASSERT_EQ(report.findings.size(), 1u) << policy << body << text_of(report);
    EXPECT_EQ(report.findings[0].rule, "limit") << policy << body;
    EXPECT_NE(report.findings[0].message.find("--max-instructions is 20000"), std::string::npos);
  }
}

// The second warp can run only if the first, which waits for it, gives way.
TEST(DivergentLoops, LetAnotherWarpSetTheFlagThatTheyPoll) {
  for (const char* policy : kPolicies) {
    const LaunchReport report =
        run("setp.ge.u32 %p1, %r0, 32;\n@%p1 bra set;\n"
            "poll: ld.volatile.global.u32 %r2, [%d0];\n@%p0 bra met;\nadd.u32 %r3, %r3, 1;\n"
            "met: setp.eq.u32 %p2, %r2, 0;\n@%p2 bra poll;\nret;\n"
            "set: mov.u32 %r2, 1;\nst.volatile.global.u32 [%d0], %r2;\n",
            policy, 64);
    EXPECT_EQ(report.status, "ok") << policy << text_of(report);
  }
}

// The same within one warp: those that part in the loop wait for a lane that is not in it.
TEST(DivergentLoops, LetOtherLanesOfTheWarpSetTheFlagThatTheyPoll) {
  for (const char* policy : kPolicies) {
    const LaunchReport report =
        run("setp.eq.u32 %p1, %r0, 31;\n@%p1 bra set;\n"
            "poll: ld.volatile.global.u32 %r2, [%d0];\n@%p0 bra met;\nadd.u32 %r3, %r3, 1;\n"
            "met: setp.eq.u32 %p2, %r2, 0;\n@%p2 bra poll;\nret;\n"
            "set: mov.u32 %r2, 1;\nst.volatile.global.u32 [%d0], %r2;\n",
            policy);
    EXPECT_EQ(report.status, "ok") << policy << text_of(report);
  }
}

// Who has the lock waits behind the loop for the lanes that poll, and must go on without them; all
// of them have met again when they come to the barrier.
TEST(DivergentLoops, LetTheLaneThatHoldsALockGoOnAlone) {
  for (const char* policy : kPolicies) {
    MachineOptions options = under(policy);
    options.max_instructions = 10'000'000;
    options.check = "all";
    PtxProgram program(
        "lock: atom.acquire.cta.global.cas.b32 %r1, [%d0], 0, 1;\nsetp.ne.u32 %p0, %r1, 0;\n"
        "@%p0 bra lock;\nld.relaxed.cta.global.u32 %r2, [%d0+4];\nadd.u32 %r2, %r2, 1;\n"
        "st.relaxed.cta.global.u32 [%d0+4], %r2;\n"
        "atom.release.cta.global.exch.b32 %r1, [%d0], 0;\n"
        "bar.warp.sync 0xffffffff;\nbar.sync 0;\n",
        options);
    const uint64_t out = program.buffer("out", std::vector<uint32_t>(2, 0));
    const LaunchReport report = program.launch(out, 0, 64);
    EXPECT_EQ(report.status, "ok") << policy << text_of(report);
    EXPECT_EQ(program.read<uint32_t>(out, 2), (std::vector<uint32_t>{0, 64})) << policy;
  }
}

// A warp's barriers of one mask meet wherever they stand. Lane 31, which the guard holds back,
// takes no part.
TEST(DivergentLanes, MeetAtTheWarpBarriersOfBothArms) {
  for (const char* policy : kPolicies) {
    MachineOptions options = under(policy);
    options.check = "all";
    PtxProgram program(
        "setp.lt.u32 %p0, %r0, 3;\nsetp.ne.u32 %p1, %r0, 31;\nmov.u32 %r5, word;\n"
        "mad.wide.u32 %d2, %r0, 4, %d0;\n@%p0 bra few;\n"
        "@%p1 bar.warp.sync 0x7fffffff;\n@%p1 ld.shared.u32 %r2, [%r5];\n"
        "@%p1 bar.warp.sync 0x7fffffff;\nbra.uni met;\n"
        "few: st.shared.u32 [%r5], 7;\nbar.warp.sync 0x7fffffff;\n"
        "bar.warp.sync 0x7fffffff;\nst.shared.u32 [%r5], 9;\nmov.u32 %r2, 8;\n"
        "met: @%p1 st.global.u32 [%d2], %r2;\n",
        options, ".shared .align 4 .u32 word;\n");
    const uint64_t out = program.buffer("out", std::vector<uint32_t>(32, 0));
    const LaunchReport report = program.launch(out);
    EXPECT_EQ(report.status, "ok") << policy << text_of(report);
    std::vector<uint32_t> expected(32, 7);
    expected[0] = expected[1] = expected[2] = 8;
    expected[31] = 0;
    EXPECT_EQ(program.read<uint32_t>(out, 32), expected) << policy;
  }
}

TEST(DivergentLoops, EndAtTheLimit) {
  expect_limit("again: @%p0 bra met;\nadd.u32 %r2, %r2, 1;\nmet: bra.uni again;\n");
  expect_limit("again: @%p0 bra again;\nbra.uni again;\n");
  expect_limit(
      "targets: .branchtargets one, two;\nand.b32 %r2, %r0, 1;\nagain: brx.idx %r2, targets;\n"
      "one: mov.u32 %r3, 1;\nbra.uni met;\ntwo: mov.u32 %r3, 2;\nmet: bra.uni again;\n");
}

TEST(DivergentLoops, InsideOneAnotherEndAtTheLimit) {
  expect_limit(
      "again: @%p0 bra other;\nback: add.u32 %r2, %r2, 1;\nbra.uni again;\n"
      "other: @!%p0 bra back;\nbra.uni again;\n");
}

TEST(DivergentLoops, ThatWaitEndAtTheLimit) {
  expect_limit(
      "mov.u32 %r5, bar;\nmbarrier.init.shared.b64 [%r5], 32;\nagain: @%p0 bra met;\n"
      "add.u32 %r2, %r2, 1;\nmet: mbarrier.test_wait.parity.shared.b64 %p1, [%r5], 0;\n"
      "@!%p1 bra again;\n");
  expect_limit("again: @%p0 bra met;\nbar.warp.sync 0xfffffff8;\nmet: bra.uni again;\n");
}

// A barrier counts warps: one that comes to it in parts has come when no other lane of it can.
TEST(DivergentLanes, AtABarrierAreAWarpWithThoseThatHaveExited) {
  const char* store =
      "mul.wide.u32 %d2, %r0, 4;\nadd.u64 %d2, %d2, %d0;\nst.global.u32 [%d2], 7;\n";
  const std::string exits =
      "and.b32 %r1, %r0, 31;\nmov.u32 %r2, 0;\nsetp.lt.u32 %p0, %r1, 16;\n@%p0 bra wait;\n"
      "again: add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 100;\n@%p1 bra again;\nexit;\n"
      "wait: barrier.sync 0;\n";
  const std::string arms =
      "setp.eq.u32 %p0, %r0, 3;\n@%p0 bra one;\nbarrier.sync 0;\nbra join;\n"
      "one: barrier.sync 0;\njoin:\n";
  for (const auto& [body, threads] :
       {std::pair{exits, 64u}, std::pair{exits, 32u}, std::pair{arms, 20u}, std::pair{arms, 50u}}) {
    PtxProgram p(body + store, {});
    const uint64_t out = p.buffer("out", std::vector<uint32_t>(64));
    const auto report = p.launch(out, 0, threads);
    EXPECT_EQ(report.status, "ok") << body << threads << text_of(report);
    EXPECT_EQ(p.read<uint32_t>(out, 4), std::vector<uint32_t>(4, 7));
  }
}

// One that arrives in parts, again and again, at a barrier that another awaits.
TEST(DivergentLanes, ArriveInEveryPhase) {
  PtxProgram p(
      "mov.u32 %r2, 0;\nsetp.ge.u32 %p0, %r0, 32;\nsetp.lt.u32 %p1, %r0, 5;\n"
      "again: @%p0 bra wait;\n@%p1 bra few;\nbarrier.arrive 1, 64;\nbra next;\n"
      "few: barrier.arrive 1, 64;\nbra next;\nwait: barrier.sync 1, 64;\n"
      "next: barrier.sync 2, 64;\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, 5;\n"
      "@%p2 bra again;\n",
      {});
  const auto report = p.launch(p.buffer("out", 256), 0, 64);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

// Not met here; the message says that it is no deadlock of the kernel's.
TEST(DivergentLanes, ThatShuffleInTwoArmsAreNamedWithTheirLines) {
  PtxProgram p(
      "setp.lt.u32 %p0, %r0, 16;\n@%p0 bra low;\nshfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\n"
      "bra join;\nlow: shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\njoin:\n",
      {});
  const auto report = p.launch(p.buffer("out", 16));
  ASSERT_EQ(report.status, "deadlock") << text_of(report);
  ASSERT_EQ(report.deadlock.size(), 2u) << text_of(report);
  const std::string lines =
      fmt::format("lines {}, {}: on hardware they meet",
                  std::min(report.deadlock[0].ptx_line, report.deadlock[1].ptx_line),
                  std::max(report.deadlock[0].ptx_line, report.deadlock[1].ptx_line));
  for (const auto& waiter : report.deadlock) {
    EXPECT_NE(waiter.waits_on.find(lines), std::string::npos) << text_of(report);
  }
}

}  // namespace
}  // namespace ptxemu
