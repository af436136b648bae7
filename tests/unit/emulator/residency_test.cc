// Clusters that are there together and take turns: what they do to each other by tickets, flags and
// sums in global memory, and what the checker says where nothing orders it.
#include <set>

#include "checked_program.h"
#include "core/sanitizers.h"

namespace ptxemu {
namespace {

MachineOptions together(uint32_t resident, const char* policy = "random", uint64_t seed = 1,
                        bool check = true) {
  MachineOptions options = checked(policy);
  options.resident = resident;
  options.seed = seed;
  options.check = check;
  return options;
}

// --- A ticket, and a turn that goes from work to work --------------------------------------------

constexpr uint32_t kWorks = 100, kCtas = 4;

constexpr const char* kTakeTurn =
    "turn: ld.acquire.gpu.global.u32 %r3, [%d1+4];\nsetp.ne.u32 %p1, %r3, %r2;\n@%p1 bra turn;\n";
constexpr const char* kGiveTurn = "red.release.gpu.global.add.u32 [%d1+4], 1;\n";
// What the sum comes to depends on the order of the works.
constexpr const char* kAdd =
    "ld.global.u32 %r4, [%d1+8];\nmad.lo.u32 %r4, %r4, 3, %r2;\nst.global.u32 [%d1+8], %r4;\n";

// CTAs of one thread take works by a ticket, and say who took which.
std::string works(const std::string& one) {
  return "mov.u32 %r1, %ctaid.x;\nwork: atom.global.add.u32 %r2, [%d1], 1;\n"
         "setp.ge.u32 %p0, %r2, " +
         std::to_string(kWorks) +
         ";\n@%p0 bra end;\nmul.wide.u32 %d2, %r2, 4;\nadd.u64 %d2, %d2, %d0;\n"
         "st.global.u32 [%d2], %r1;\n" +
         one + "bra work;\nend:\n";
}

struct Worked {
  LaunchReport report;
  std::vector<uint32_t> takers;
  uint32_t sum = 0;
  size_t ctas() const { return std::set<uint32_t>(takers.begin(), takers.end()).size(); }
};

Worked run_works(const std::string& one, const MachineOptions& options) {
  PtxProgram p(works(one), options);
  const uint64_t takers = p.buffer("takers", 4 * kWorks);
  const uint64_t words = p.buffer("words", std::vector<uint32_t>{0, 0, 0});
  Worked result;
  result.report = p.launch(takers, words, 1, kCtas);
  result.takers = p.read<uint32_t>(takers, kWorks);
  result.sum = p.read<uint32_t>(words, 3)[2];
  return result;
}

uint32_t sum_in_order() {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kWorks; ++i) sum = 3 * sum + i;
  return sum;
}

TEST(Together, ClustersTakeTicketsInTurn) {
  const std::string one = std::string(kTakeTurn) + kAdd + kGiveTurn;
  for (const char* policy : {"eager", "late", "random", "split"}) {
    EXPECT_EQ(run_works(one, together(1, policy)).ctas(), 1u) << policy;
    for (const uint32_t resident : {2u, 3u, kCtas}) {
      const Worked worked = run_works(one, together(resident, policy));
      EXPECT_EQ(worked.report.status, "ok") << policy << resident << text_of(worked.report);
      EXPECT_EQ(worked.ctas(), resident) << policy;
      EXPECT_EQ(worked.sum, sum_in_order()) << policy << resident;
    }
  }
}

TEST(Together, TheSeedAloneSaysWhoTakesWhat) {
  const std::string one = std::string(kTakeTurn) + kAdd + kGiveTurn;
  std::set<std::vector<uint32_t>> orders;
  for (const uint64_t seed : {1, 2, 3}) {
    MachineOptions options = together(3, "random", seed);
    const auto takers = run_works(one, options).takers;
    orders.insert(takers);
    for (const uint32_t threads : {1u, 5u}) {
      options.threads = threads;
      EXPECT_EQ(run_works(one, options).takers, takers) << seed << threads;
    }
    options.check = false;
    EXPECT_EQ(run_works(one, options).takers, takers) << seed;
  }
  EXPECT_EQ(orders.size(), 3u);
}

// One CTA that takes all works keeps their order by its program: nobody else is there to be told.
TEST(Together, ATurnWithoutReleaseOrAcquireIsFound) {
  const std::string relaxed_give = "red.relaxed.gpu.global.add.u32 [%d1+4], 1;\n";
  std::string relaxed_take = kTakeTurn;
  relaxed_take.replace(relaxed_take.find("acquire"), 7, "relaxed");
  for (const std::string& one :
       {kTakeTurn + std::string(kAdd) + relaxed_give, relaxed_take + kAdd + kGiveTurn}) {
    const Worked alone = run_works(one, together(1));
    EXPECT_EQ(alone.report.status, "ok") << text_of(alone.report);
    for (const uint64_t seed : {1, 2, 3, 4}) {
      const Worked worked = run_works(one, together(2, "random", seed));
      EXPECT_EQ(severity(worked.report, "global-race"), "error") << text_of(worked.report);
    }
  }
}

TEST(Together, ATurnGivenTooEarlyIsFoundAndMakesAWrongSum) {
  const std::string early = std::string(kTakeTurn) + kGiveTurn + kAdd;
  const Worked alone = run_works(early, together(1));
  EXPECT_EQ(alone.report.status, "ok") << text_of(alone.report);
  EXPECT_EQ(alone.sum, sum_in_order());
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Worked worked = run_works(early, together(3, "random", seed));
    EXPECT_EQ(severity(worked.report, "global-race"), "error") << text_of(worked.report);
    wrong += run_works(early, together(3, "random", seed, false)).sum != sum_in_order();
  }
  EXPECT_GT(wrong, 0);
}

// --- Waiting for each other ----------------------------------------------------------------------

// CTAs 0 and 1 count a word up in turn, each while it is even or odd; `poll` reads it into %r4.
std::string count_in_turn(const std::string& poll) {
  return "mov.u32 %r1, %ctaid.x;\nwait: " + poll +
         "and.b32 %r5, %r4, 1;\nsetp.ne.u32 %p0, %r5, %r1;\n@%p0 bra wait;\n"
         "setp.ge.u32 %p1, %r4, 40;\nadd.u32 %r4, %r4, 1;\nst.release.gpu.global.u32 [%d0], %r4;\n"
         "@!%p1 bra wait;\n";
}

TEST(Together, WhoPollsLetsTheOthersRun) {
  const std::string load = "ld.acquire.gpu.global.u32 %r4, [%d0];\n";
  for (const std::string& poll : {load, "nanosleep.u32 20;\n" + load,
                                  std::string("atom.acquire.gpu.global.or.b32 %r4, [%d0], 0;\n")}) {
    for (const uint64_t seed : {1, 2, 3}) {
      PtxProgram p(count_in_turn(poll), together(2, "random", seed));
      const uint64_t out = p.buffer("out", std::vector<uint32_t>{0});
      const auto report = p.launch(out, 0, 1, 2);
      EXPECT_EQ(report.status, "ok") << poll << text_of(report);
      EXPECT_EQ(p.read<uint32_t>(out, 1)[0], 42u);
    }
  }
}

TEST(Together, MoreStartWhenThoseThatAreThereWaitForThem) {
  PtxProgram p(
      "mov.u32 %r2, %nctaid.x;\natom.release.gpu.global.add.u32 %r3, [%d0], 1;\n"
      "wait: ld.acquire.gpu.global.u32 %r4, [%d0];\nsetp.lt.u32 %p1, %r4, %r2;\n@%p1 bra wait;\n",
      together(2));
  const auto report = p.launch(p.buffer("out", std::vector<uint32_t>{0}), 0, 1, 12);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

// Each CTA polls ten thousand times what all add to, and the checker learns of each sum once: this
// took half a minute.
TEST(Together, ABarrierOfAWholeGridIsCheckedInLittleTime) {
#if defined(FA4_ADDRESS_SANITIZER) || defined(FA4_THREAD_SANITIZER)
  constexpr uint32_t kGrid = 20;
#else
  constexpr uint32_t kGrid = 132;
#endif
  for (const char* poll :
       {"ld.acquire.gpu.global.u32 %r4, [%d0];\n", "ld.relaxed.gpu.global.u32 %r4, [%d0];\n",
        "ld.relaxed.gpu.global.u32 %r4, [%d0];\nfence.acq_rel.gpu;\n",
        "atom.acq_rel.gpu.global.add.u32 %r4, [%d0], 0;\n"}) {
    PtxProgram p(
        "mov.u32 %r2, %nctaid.x;\nmov.u32 %r1, %ctaid.x;\nmul.wide.u32 %d2, %r1, 4;\n"
        "add.u64 %d2, %d2, %d1;\nst.global.u32 [%d2], %r1;\nfence.acq_rel.gpu;\n"
        "red.relaxed.gpu.global.add.u32 [%d0], 1;\nwait: " +
            std::string(poll) +
            "setp.lt.u32 %p1, %r4, %r2;\n@%p1 bra wait;\nfence.acq_rel.gpu;\n"
            "ld.global.u32 %r5, [%d1];\nld.global.u32 %r5, [%d1+76];\n",
        checked());
    const auto report = p.launch(p.buffer("out", std::vector<uint32_t>{0}),
                                 p.buffer("in", std::vector<uint32_t>(kGrid)), 1, kGrid);
    EXPECT_EQ(report.status, "ok") << poll << text_of(report);
  }
}

// Warp 0 of each CTA waits for the other CTA's word, or for the barrier that its own warp 1 would
// complete once warp 0 has gone on.
TEST(Together, CtasThatWaitForEachOtherAreADeadlockOfBoth) {
  PtxProgram p(
      "mov.u32 %r1, %ctaid.x;\nmov.u32 %r6, bar;\nsetp.eq.u32 %p0, %r0, 0;\n"
      "@%p0 mbarrier.init.shared.b64 [%r6], 1;\nxor.b32 %r2, %r1, 1;\nmul.wide.u32 %d2, %r1, 4;\n"
      "mul.wide.u32 %d3, %r2, 4;\nadd.u64 %d2, %d2, %d0;\nadd.u64 %d3, %d3, %d0;\nbar.sync 0;\n"
      "setp.ge.u32 %p1, %r0, 32;\n@%p1 bra last;\n"
      "poll: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0;\n@%p2 bra on;\n"
      "ld.acquire.gpu.global.u32 %r4, [%d3];\nsetp.eq.u32 %p3, %r4, 0;\n@%p3 bra poll;\n"
      "on: st.release.gpu.global.u32 [%d2], 1;\nlast: bar.sync 0;\n"
      "@%p1 mbarrier.arrive.shared.b64 _, [%r6];\n",
      together(2), ".shared .align 8 .b64 bar;\n");
  const uint64_t out = p.buffer("out", std::vector<uint32_t>{0, 0});
  const auto report = p.launch(out, 0, 64, 2);
  ASSERT_EQ(report.status, "deadlock") << text_of(report);
  ASSERT_EQ(report.deadlock.size(), 4u) << text_of(report);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(report.deadlock[i].cta[0], i / 2);
  // The same kernel ends where one of them has been told already.
  const std::vector<uint32_t> told{1, 0};
  p.machine().copy_in(out, told.data(), 8);
  EXPECT_EQ(p.launch(out, 0, 64, 2).status, "findings");
}

// Two CTAs that poll each other's word: nothing is stuck, and nothing comes of it.
TEST(Together, CtasThatPollWhatNeverComesAreADeadlock) {
#if defined(FA4_ADDRESS_SANITIZER) || defined(FA4_THREAD_SANITIZER)
  GTEST_SKIP() << "polling is given up after 400 million instructions, too many here";
#endif
  PtxProgram p(
      "mov.u32 %r1, %ctaid.x;\nxor.b32 %r2, %r1, 1;\nmul.wide.u32 %d2, %r1, 4;\n"
      "mul.wide.u32 %d3, %r2, 4;\nadd.u64 %d2, %d2, %d0;\nadd.u64 %d3, %d3, %d0;\n"
      "poll: ld.acquire.gpu.global.u32 %r3, [%d3];\nsetp.eq.u32 %p0, %r3, 0;\n@%p0 bra poll;\n"
      "st.release.gpu.global.u32 [%d2], 1;\n",
      together(2, "random", 1, false));
  const auto report = p.launch(p.buffer("out", std::vector<uint32_t>{0, 0}), 0, 1, 2);
  ASSERT_EQ(report.status, "deadlock") << text_of(report);
  ASSERT_EQ(report.deadlock.size(), 2u) << text_of(report);
  for (const auto& waiter : report.deadlock) {
    EXPECT_EQ(waiter.waits_on, "runs (polls memory or a barrier)");
  }
}

// --- Which clusters there are --------------------------------------------------------------------

// Every CTA counts itself, and those that it takes over.
TEST(Together, EachClusterRunsOrIsTakenOverOnce) {
  const std::string body =
      "mov.u32 %r1, %ctaid.x;\nmov.u32 %r6, bar;\nmov.u32 %r7, answer;\nmov.u32 %r8, 0;\n"
      "mbarrier.init.shared.b64 [%r6], 1;\nfence.proxy.async.shared::cta;\n"
      "again: mul.wide.u32 %d2, %r1, 4;\nadd.u64 %d2, %d2, %d0;\n"
      "red.global.add.u32 [%d2], 1;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r6], 16;\n"
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r7], "
      "[%r6];\nwait: mbarrier.try_wait.parity.shared.b64 %p0, [%r6], %r8;\n@!%p0 bra wait;\n"
      "xor.b32 %r8, %r8, 1;\nld.shared.b128 %q0, [%r7];\nfence.proxy.async.shared::cta;\n"
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q0;\n"
      "@!%p1 bra end;\nred.global.add.u32 [%d1], 1;\n"
      "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r1, %q0;\nbra again;\nend:\n";
  constexpr uint32_t kGrid = 20;
  for (const char* order : {"in_order", "random"}) {
    MachineOptions options = together(3);
    options.launch_order = order;
    PtxProgram p(body, options, ".shared .align 8 .b64 bar;\n.shared .align 16 .b8 answer[16];\n");
    const uint64_t out = p.buffer("out", std::vector<uint32_t>(kGrid));
    const uint64_t taken = p.buffer("taken", std::vector<uint32_t>{0});
    const auto report = p.launch(out, taken, 1, kGrid);
    EXPECT_EQ(report.status, "ok") << order << text_of(report);
    EXPECT_EQ(p.read<uint32_t>(out, kGrid), std::vector<uint32_t>(kGrid, 1)) << order;
    EXPECT_EQ(p.read<uint32_t>(taken, 1)[0], kGrid - 3) << order;
  }
}

TEST(Together, NoClusterAtATimeIsRefused) {
  try {
    Machine machine({.resident = 0});
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()), "resident 0; accepted: 1 and more");
  }
}

}  // namespace
}  // namespace ptxemu
