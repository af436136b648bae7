// What an ordering passes on depends on its direction, its scope and what it is restricted to.
#include "checked_program.h"

namespace ptxemu {
namespace {

// --- Between the CTAs of a cluster --------------------------------------------------------------

constexpr const char* kWord = ".shared .align 8 .b64 bar;\n.shared .align 8 .u32 word;\n";
// Thread 0 of each CTA; %p0: CTA rank 0; %r3, %r4: the word and the barrier of the other CTA.
constexpr const char* kPair =
    "mov.u32 %r1, %cluster_ctarank;\nsetp.eq.u32 %p0, %r1, 0;\nxor.b32 %r2, %r1, 1;\n"
    "mov.u32 %r5, word;\nmov.u32 %r6, bar;\nmapa.shared::cluster.u32 %r3, %r5, %r2;\n"
    "mapa.shared::cluster.u32 %r4, %r6, %r2;\n";
constexpr const char* kInit =
    "mbarrier.init.shared::cta.b64 [%r6], 1;\nfence.mbarrier_init.release.cluster;\n"
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
constexpr const char* kMeet = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";

LaunchReport run_pair(const std::string& body, const char* policy = "eager") {
  PtxProgram p(kPair + body, checked(policy), kWord);
  return p.launch(p.buffer("out", 256), 0, 1, 2, 2);
}

// CTA rank 1 hands a word to rank 0.
LaunchReport hand_over(const char* arrive, const char* wait, const char* before = "",
                       const char* after = "") {
  return run_pair(std::string(kInit) + "@%p0 bra owner;\nst.shared::cluster.u32 [%r3], 77;\n" +
                  before + "mbarrier.arrive" + arrive +
                  ".shared::cluster.b64 _, [%r4];\nbra end;\n"
                  "owner: mbarrier.try_wait.parity" +
                  wait + ".shared::cta.b64 %p1, [%r6], 0;\n@!%p1 bra owner;\n" + after +
                  "ld.shared.u32 %r7, [%r5];\nst.global.u32 [%d0], %r7;\nend:\n" + kMeet);
}

TEST(Orderings, ARelaxedWaitOrdersNothing) {
  const auto good = hand_over(".release.cluster", ".acquire.cluster");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto relaxed = hand_over(".release.cluster", ".relaxed.cluster");
  EXPECT_EQ(severity(relaxed, "shared-race"), "error") << text_of(relaxed);
  const auto fenced =
      hand_over(".release.cluster", ".relaxed.cluster", "", "fence.acq_rel.cluster;\n");
  EXPECT_EQ(fenced.status, "ok") << text_of(fenced);
  const auto narrow = hand_over(".release.cluster", ".relaxed.cluster", "", "fence.acq_rel.cta;\n");
  EXPECT_EQ(severity(narrow, "shared-race"), "error") << text_of(narrow);
}

TEST(Orderings, ARelaxedArrivalPassesOnWhatAFenceCovers) {
  const auto relaxed = hand_over(".relaxed.cluster", ".acquire.cluster");
  EXPECT_EQ(severity(relaxed, "shared-race"), "error") << text_of(relaxed);
  const auto fenced = hand_over(".relaxed.cluster", ".acquire.cluster", "fence.acq_rel.cluster;\n");
  EXPECT_EQ(fenced.status, "ok") << text_of(fenced);
  const auto restricted = hand_over(".relaxed.cluster", ".acquire.cluster",
                                    "fence.release.sync_restrict::shared::cta.cluster;\n");
  EXPECT_EQ(restricted.status, "ok") << text_of(restricted);
}

TEST(Orderings, OfScopeCtaReachNoOtherCta) {
  for (const auto& [arrive, wait] : {std::pair{".release.cta", ".acquire.cluster"},
                                     {"", ".acquire.cluster"},
                                     {".release.cluster", ".acquire.cta"},
                                     {".release.cluster", ""}}) {
    const auto report = hand_over(arrive, wait);
    EXPECT_EQ(severity(report, "narrow-scope"), "formal") << text_of(report);
    EXPECT_TRUE(report.passed()) << text_of(report);
  }
}

// A relaxed arrival behind a fence and a relaxed wait before one: all four must reach the other
// CTA.
TEST(Orderings, AroundRelaxedOnesReachNoOtherCtaWithScopeCta) {
  const char *release = "fence.release.sync_restrict::shared::cta.cluster;\n",
             *acquire = "fence.acquire.sync_restrict::shared::cluster.cluster;\n";
  const auto good = hand_over(".relaxed.cluster", ".relaxed.cluster", release, acquire);
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto wait = hand_over(".relaxed.cluster", ".relaxed.cta", release, acquire);
  EXPECT_EQ(severity(wait, "narrow-scope"), "formal") << text_of(wait);
  const auto behind_a_release = hand_over(".release.cluster", ".relaxed.cta", "", acquire);
  EXPECT_EQ(severity(behind_a_release, "narrow-scope"), "formal") << text_of(behind_a_release);
  const auto fence =
      hand_over(".relaxed.cluster", ".relaxed.cluster", release, "fence.acquire.cta;\n");
  EXPECT_EQ(severity(fence, "shared-race"), "error") << text_of(fence);
  const auto arrival = hand_over(".relaxed.cta", ".relaxed.cluster", release, acquire);
  EXPECT_EQ(severity(arrival, "shared-race"), "error") << text_of(arrival);
}

// Before the barrier CTA rank 1 writes a word of rank 0, which reads it afterwards.
LaunchReport over_cluster_barrier(const char* before, const char* arrive) {
  return run_pair(std::string(kMeet) + "@!%p0 st.shared::cluster.u32 [%r3], 77;\n" + before +
                  "barrier.cluster.arrive" + arrive +
                  ".aligned;\nbarrier.cluster.wait.aligned;\n"
                  "@!%p0 bra end;\nld.shared.u32 %r7, [%r5];\nst.global.u32 [%d0], %r7;\nend:\n");
}

TEST(Orderings, ARelaxedClusterArrivalPassesOnWhatAFenceCovers) {
  const auto good = over_cluster_barrier("", "");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto fenced = over_cluster_barrier("fence.acq_rel.cluster;\n", ".relaxed");
  EXPECT_EQ(fenced.status, "ok") << text_of(fenced);
  for (const char* fence : {"", "fence.acq_rel.cta;\n", "fence.mbarrier_init.release.cluster;\n",
                            "fence.acquire.cluster;\n"}) {
    const auto report = over_cluster_barrier(fence, ".relaxed");
    EXPECT_EQ(severity(report, "shared-race"), "error") << fence << text_of(report);
  }
}

// Thread 0 writes a word, which another warp of the CTA reads after a barrier of the cluster.
LaunchReport over_own_barrier(const std::string& write, const char* arrive, const char* late = "") {
  const std::string barrier =
      std::string("barrier.cluster.arrive") + arrive + ".aligned;\nbarrier.cluster.wait.aligned;\n";
  PtxProgram p(
      "setp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, %r0, 32;\nmov.u32 %r5, word;\n"
      "bar.sync 0;\n" +
          write + barrier + late +
          "@!%p1 bra end;\nld.shared.u32 %r7, [%r5];\nst.global.u32 [%d0], %r7;\nend:\n",
      checked(), kWord);
  return p.launch(p.buffer("out", 256), 0, 64);
}

TEST(Orderings, ARelaxedClusterArrivalFormallyOrdersReadsOfTheOwnCta) {
  const std::string store = "@%p0 st.shared.u32 [%r5], 77;\n";
  const std::string copy =
      "@%p0 cp.async.ca.shared.global [%r5], [%d0+16], 4;\n@%p0 cp.async.commit_group;\n";
  const std::string wait = "@%p0 cp.async.wait_all;\n";
  for (const auto& write : {store, copy + wait}) {
    const auto good = over_own_barrier(write, "");
    EXPECT_EQ(good.status, "ok") << text_of(good);
    const auto relaxed = over_own_barrier(write, ".relaxed");
    EXPECT_EQ(severity(relaxed, "shared-race"), "formal") << text_of(relaxed);
    EXPECT_TRUE(relaxed.passed());
  }
  for (const auto& report : {over_own_barrier(copy, ".relaxed", wait.c_str()),
                             over_own_barrier("", ".relaxed", store.c_str())}) {
    EXPECT_EQ(severity(report, "shared-race"), "error") << text_of(report);
  }
}

// --- Initialisation of mbarriers ----------------------------------------------------------------

LaunchReport run_initialised(const char* between) {
  PtxProgram p(
      "mov.u32 %r6, bar;\nsetp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, %r0, 32;\n"
      "@%p0 mbarrier.init.shared::cta.b64 [%r6], 1;\n" +
          std::string(between) + "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r6];\n",
      checked(), kWord);
  return p.launch(p.buffer("out", 16), 0, 64);
}

TEST(Initialisation, OfAnMbarrierMustComeBeforeItsUseByOtherWarps) {
  const auto good = run_initialised("bar.sync 0;\n");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto bare = run_initialised("");
  EXPECT_EQ(severity(bare, "mbarrier-race"), "error") << text_of(bare);
}

LaunchReport run_initialised_in_pair(const char* fence, const char* arrive) {
  return run_pair("mbarrier.init.shared::cta.b64 [%r6], 1;\n" + std::string(fence) +
                  "barrier.cluster.arrive" + arrive +
                  ".aligned;\nbarrier.cluster.wait.aligned;\n"
                  "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];\n"
                  "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r6], 0;\n"
                  "@!%p1 bra wait;\n" +
                  kMeet);
}

TEST(Initialisation, IsPassedOnByItsFenceAndARelaxedClusterBarrier) {
  const char* fence = "fence.mbarrier_init.release.cluster;\n";
  for (const auto& [fenced, arrive] : {std::pair{fence, ".relaxed"},
                                       {fence, ""},
                                       {"", ""},
                                       {"fence.acq_rel.cluster;\n", ".relaxed"}}) {
    const auto good = run_initialised_in_pair(fenced, arrive);
    EXPECT_EQ(good.status, "ok") << text_of(good);
  }
  const auto bare = run_initialised_in_pair("", ".relaxed");
  EXPECT_EQ(severity(bare, "mbarrier-race"), "error") << text_of(bare);
}

// The copy engine signals a barrier that another warp has initialised.
LaunchReport run_copy_into_initialised(const char* between) {
  PtxProgram p(
      "mov.u32 %r6, bar;\nmov.u32 %r2, box;\nsetp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, %r0, 32;\n"
      "@%p0 mbarrier.init.shared::cta.b64 [%r6], 1;\n" +
          std::string(between) +
          "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1], 16, "
          "[%r6];\n@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 16;\n"
          "wait: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r6], 0;\n@!%p2 bra wait;\n",
      checked("late"), ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 box[16];\n");
  return p.launch(p.buffer("out", 16), p.buffer("in", std::vector<uint32_t>(4)), 64);
}

TEST(Initialisation, OfAnMbarrierMustComeBeforeAnEngineSignalsIt) {
  const auto good = run_copy_into_initialised("bar.sync 0;\n");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto bare = run_copy_into_initialised("");
  EXPECT_EQ(severity(bare, "mbarrier-race"), "error") << text_of(bare);
}

// --- Copies of threads ---------------------------------------------------------------------------

// Each of 64 threads copies 16 bytes, some time later `arrives` at a barrier, and reads what
// another warp copied.
LaunchReport run_copies(const char* policy, const char* arrives) {
  PtxProgram p(
      std::string("mov.u32 %r1, bar;\nmov.u32 %r2, tile;\nsetp.eq.u32 %p0, %r0, 0;\n"
                  "@%p0 mbarrier.init.shared.b64 [%r1], 64;\nbar.sync 0;\n"
                  "shl.b32 %r3, %r0, 4;\nadd.u32 %r3, %r2, %r3;\nmad.wide.u32 %d2, %r0, 16, %d1;\n"
                  "cp.async.ca.shared.global [%r3], [%d2], 16;\nmov.u32 %r6, 200;\n"
                  "later: sub.u32 %r6, %r6, 1;\nsetp.ne.u32 %p1, %r6, 0;\n@%p1 bra later;\n") +
          arrives +
          "wait: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;\n@!%p2 bra wait;\n"
          "xor.b32 %r4, %r0, 63;\nshl.b32 %r3, %r4, 4;\nadd.u32 %r3, %r2, %r3;\n"
          "ld.shared.u32 %r5, [%r3];\nmad.wide.u32 %d2, %r0, 4, %d0;\nst.global.u32 [%d2], %r5;\n",
      checked(policy), ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 tile[1024];\n");
  return p.launch(p.buffer("out", 256), p.buffer("in", std::vector<uint32_t>(256)), 64);
}

// Eager: the copies are done when the arrival is issued.
TEST(Copies, AnArrivalSpeaksForThoseBeforeItDoneOrNot) {
  for (const char* policy : {"eager", "late", "random"}) {
    const auto good = run_copies(policy, "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];\n");
    EXPECT_EQ(good.status, "ok") << policy << text_of(good);
    EXPECT_TRUE(good.findings.empty()) << policy << text_of(good);
    const auto bare = run_copies(policy, "mbarrier.arrive.shared.b64 _, [%r1];\n");
    EXPECT_FALSE(bare.findings.empty()) << policy;
  }
}

// --- Between clusters ---------------------------------------------------------------------------

// One thread of cluster 0 hands a value to one of cluster 1: `release` is before or at the store to
// the flag, `acquire` at or after the load of it.
LaunchReport run_flag(const char* store, const char* load, const char* release = "",
                      const char* acquire = "", uint32_t cluster = 1) {
  const std::string body =
      "mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p0, %r1, 0;\n@!%p0 bra wait;\n"
      "st.global.u32 [%d0], 42;\n" +
      std::string(release) + "st" + store +
      ".global.u32 [%d0+128], 1;\nbra end;\n"
      "wait: ld" +
      load + ".global.u32 %r2, [%d0+128];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra wait;\n" + acquire +
      "ld.global.u32 %r3, [%d0];\nst.global.u32 [%d0+8], %r3;\nend:\n";
  PtxProgram p(body, checked());
  return p.launch(p.buffer("out", std::vector<uint32_t>(64)), 0, 1, 2, cluster);
}

TEST(Scopes, OfAFlagMustReachBothThreads) {
  EXPECT_EQ(run_flag(".release.gpu", ".acquire.gpu").status, "ok");
  for (const auto& [store, load] : {std::pair{".release.cluster", ".acquire.cluster"},
                                    {".release.gpu", ".acquire.cluster"},
                                    {".release.cta", ".acquire.gpu"}}) {
    const auto report = run_flag(store, load);
    EXPECT_EQ(severity(report, "global-race"), "error") << store << text_of(report);
  }
  EXPECT_EQ(run_flag(".release.cluster", ".acquire.cluster", "", "", 2).status, "ok");
  const auto cta = run_flag(".release.cta", ".acquire.cta", "", "", 2);
  EXPECT_EQ(severity(cta, "global-race"), "error") << text_of(cta);
}

// Warp 0 of CTA 0 hands a value to its own warp 1, by way of CTA 1; `acquire` is what warp 1 does.
TEST(Orderings, GoThroughAnotherClusterAndBack) {
  const auto run = [](const std::string& acquire) {
    PtxProgram p(
        "mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p0, %r1, 1;\nsetp.eq.u32 %p1, %r0, 32;\n"
        "@%p0 bra other;\n@%p1 bra second;\n"
        "st.global.u32 [%d0], 42;\nst.release.gpu.global.u32 [%d0+128], 1;\nbra end;\n"
        "other: @%p1 bra end;\nthere: ld.acquire.gpu.global.u32 %r2, [%d0+128];\n"
        "setp.eq.u32 %p2, %r2, 0;\n@%p2 bra there;\n"
        "st.release.gpu.global.u32 [%d0+132], 1;\nbra end;\nsecond: " +
            acquire +
            "setp.eq.u32 %p2, %r2, 0;\n@%p2 bra second;\n"
            "ld.global.u32 %r3, [%d0];\nst.global.u32 [%d0+8], %r3;\nend:\n",
        checked());
    return p.launch(p.buffer("out", std::vector<uint32_t>(64)), 0, 33, 2);
  };
  const auto acquired = run("ld.acquire.gpu.global.u32 %r2, [%d0+132];\n");
  EXPECT_EQ(acquired.status, "ok") << text_of(acquired);
  const auto fenced = run("ld.relaxed.gpu.global.u32 %r2, [%d0+132];\nfence.acquire.gpu;\n");
  EXPECT_EQ(fenced.status, "ok") << text_of(fenced);
  const auto relaxed = run("ld.relaxed.gpu.global.u32 %r2, [%d0+132];\n");
  EXPECT_EQ(severity(relaxed, "global-race"), "error") << text_of(relaxed);
}

TEST(Scopes, OfAnAtomicMustReachBothThreads) {
  const auto run = [](const std::string& scope, const char* sum, uint32_t cluster) {
    PtxProgram p("red.relaxed" + scope + ".global.add" + sum + ";\n", checked());
    return p.launch(p.buffer("out", std::vector<uint32_t>(64)), 0, 1, 2, cluster);
  };
  const char *integers = ".u32 [%d0], 1", *floats = ".f32 [%d0], 0f3f800000";
  EXPECT_EQ(run(".gpu", integers, 1).status, "ok");
  EXPECT_EQ(run(".cluster", integers, 2).status, "ok");
  EXPECT_EQ(severity(run(".gpu", floats, 1), "order_dependent"), "formal");
  for (const char* sum : {integers, floats}) {
    const auto apart = run(".cluster", sum, 1);
    EXPECT_EQ(severity(apart, "global-race"), "error") << text_of(apart);
    const auto beside = run(".cta", sum, 2);
    EXPECT_EQ(severity(beside, "global-race"), "error") << text_of(beside);
  }
}

// Also in shared memory, which other CTAs of the cluster reach.
TEST(Scopes, OfASharedAtomicMustReachBothThreads) {
  const auto run = [](const char* scope, const char* rank) {
    PtxProgram p(
        "mov.u32 %r1, word;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [%r1], 0;\n"
        "mov.u32 %r4, %cluster_ctarank;\n"
        "mapa.shared::cluster.u32 %r2, %r1, " +
            std::string(rank) +
            ";\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
            "atom.relaxed" +
            scope +
            ".shared::cluster.add.u32 %r3, [%r2], 1;\n"
            "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n",
        checked(), ".shared .u32 word;\n");
    return p.launch(p.buffer("out", 64), 0, 64, 2, 2);
  };
  for (const char* scope : {".cluster", ".gpu", ".sys", ""}) {
    const auto report = run(scope, "0");
    EXPECT_TRUE(report.findings.empty()) << scope << text_of(report);
  }
  const auto own = run(".cta", "%r4");
  EXPECT_TRUE(own.findings.empty()) << text_of(own);
  const auto narrow = run(".cta", "0");
  EXPECT_EQ(severity(narrow, "shared-race"), "error") << text_of(narrow);
}

// "If both are memory operations, then they overlap completely" (8.7.1).
TEST(StrongAccesses, OfTwoSizesRace) {
  const auto run = [](const std::string& first, const std::string& second) {
    PtxProgram p("mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p0, %r1, 0;\nmov.b64 %d2, -1;\n@%p0 " +
                     first + ";\n@!%p0 " + second + ";\n",
                 checked());
    return p.launch(p.buffer("out", std::vector<uint32_t>(64)), 0, 1, 2);
  };
  const std::string wide = "st.relaxed.gpu.global.b64 [%d0], %d2";
  for (const char* other :
       {"st.relaxed.gpu.global.b32 [%d0+4], %r1", "st.relaxed.gpu.global.b32 [%d0], %r1",
        "st.volatile.global.b8 [%d0+3], %r1", "red.relaxed.gpu.global.add.u32 [%d0], 1",
        "st.relaxed.gpu.global.v2.b32 [%d0], {%r1, %r1}"}) {
    for (const auto& report : {run(wide, other), run(other, wide)}) {
      EXPECT_EQ(severity(report, "global-race"), "error") << other << text_of(report);
    }
  }
  for (const char* other :
       {"st.relaxed.gpu.global.b64 [%d0], %d2", "st.relaxed.gpu.global.b32 [%d0+8], %r1",
        "red.relaxed.gpu.global.add.u64 [%d0], 1",
        "st.relaxed.gpu.global.v2.b64 [%d0], {%d2, %d2}"}) {
    const auto report = run(wide, other);
    EXPECT_TRUE(report.findings.empty()) << other << text_of(report);
  }
}

TEST(Scopes, OfAFenceMustReachBothThreads) {
  const auto run = [](const char* release, const char* acquire, uint32_t cluster = 1) {
    return run_flag(".relaxed.gpu", ".relaxed.gpu", release, acquire, cluster);
  };
  EXPECT_EQ(run("fence.acq_rel.gpu;\n", "fence.acq_rel.gpu;\n").status, "ok");
  EXPECT_EQ(run("fence.release.gpu;\n", "fence.acquire.gpu;\n").status, "ok");
  EXPECT_EQ(run("fence.release.cluster;\n", "fence.acquire.cluster;\n", 2).status, "ok");
  for (const auto& [release, acquire] : {std::pair{"fence.acq_rel.cta;\n", "fence.acq_rel.gpu;\n"},
                                         {"fence.acq_rel.gpu;\n", "fence.acq_rel.cluster;\n"}}) {
    const auto report = run(release, acquire);
    EXPECT_EQ(severity(report, "global-race"), "error") << release << text_of(report);
  }
}

TEST(Fences, WorkInTheDirectionThatTheyName) {
  const auto run = [](const char* release, const char* acquire) {
    return run_flag(".relaxed.gpu", ".relaxed.gpu", release, acquire);
  };
  const auto first = run("fence.acquire.gpu;\n", "fence.acq_rel.gpu;\n");
  EXPECT_EQ(severity(first, "global-race"), "error") << text_of(first);
  const auto second = run("fence.acq_rel.gpu;\n", "fence.release.gpu;\n");
  EXPECT_EQ(severity(second, "global-race"), "error") << text_of(second);
}

TEST(Fences, ThatAreRestrictedToSharedMemoryOrderNoOther) {
  const char* acquire = "fence.acquire.sync_restrict::shared::cluster.cluster;\n";
  const auto run = [&](const char* release, const char* after) {
    return run_flag(".relaxed.cluster", ".relaxed.cluster", release, after, 2);
  };
  EXPECT_EQ(run("fence.release.cluster;\n", "fence.acquire.cluster;\n").status, "ok");
  const auto released =
      run("fence.release.sync_restrict::shared::cta.cluster;\n", "fence.acquire.cluster;\n");
  EXPECT_EQ(severity(released, "global-race"), "error") << text_of(released);
  const auto acquired = run("fence.release.cluster;\n", acquire);
  EXPECT_EQ(severity(acquired, "global-race"), "error") << text_of(acquired);
}

// --- Tickets and flags --------------------------------------------------------------------------

// Every thread of two CTAs stores a word; thread 0 of each takes a ticket, and the CTA that has the
// last one reads all words. `stored` comes between the store and the barrier, `taken` behind the
// ticket.
LaunchReport take_tickets(const std::string& stored, const std::string& taken,
                          const char* ticket = "atom.global.add.u32 %r3, [%d1], 1;\n") {
  PtxProgram p(
      "mov.u32 %r1, %ctaid.x;\nmad.lo.u32 %r2, %r1, 64, %r0;\nmul.wide.u32 %d2, %r2, 4;\n"
      "add.u64 %d2, %d2, %d0;\nst.global.u32 [%d2], %r0;\n" +
          stored + "bar.sync 0;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra join;\n" + ticket + taken +
          "st.shared.u32 [last], %r3;\njoin: bar.sync 0;\nld.shared.u32 %r3, [last];\n"
          "setp.ne.u32 %p1, %r3, 1;\n@%p1 bra end;\nxor.b32 %r4, %r2, 64;\n"
          "mul.wide.u32 %d3, %r4, 4;\nadd.u64 %d3, %d3, %d0;\nld.global.u32 %r5, [%d3];\n"
          "st.global.u32 [%d2], %r5;\nend:\n",
      checked("random"), ".shared .u32 last;\n");
  return p.launch(p.buffer("out", std::vector<uint32_t>(128)),
                  p.buffer("in", std::vector<uint32_t>(1)), 64, 2);
}

// What nvcc makes of __threadfence(): "Fence-SC order" links the fences of all threads before the
// barrier to the one behind the ticket, which makes the barrier part of the path.
TEST(Tickets, AreOrderedBySequentialFencesOnBothSides) {
  for (const std::string fence : {"membar.gl;\n", "fence.sc.gpu;\n", "fence.sc.sys;\n"}) {
    const auto both = take_tickets(fence, fence);
    EXPECT_EQ(both.status, "ok") << fence << text_of(both);
    const auto first = take_tickets(fence, "");
    EXPECT_EQ(severity(first, "global-race"), "error") << fence << text_of(first);
    const auto second = take_tickets("", fence);
    EXPECT_EQ(severity(second, "global-race"), "error") << fence << text_of(second);
  }
}

// A release pattern is one thread's: what other warps stored lies behind the fence of the one that
// takes the ticket, unless that fence comes after the barrier.
TEST(Tickets, AreOrderedByOtherFencesOnlyBehindTheBarrier) {
  const std::string fence = "fence.acq_rel.gpu;\n";
  const auto before = take_tickets(fence, fence);
  EXPECT_EQ(severity(before, "global-race"), "error") << text_of(before);
  const std::string ticket = fence + "atom.global.add.u32 %r3, [%d1], 1;\n";
  const auto behind = take_tickets("", fence, ticket.c_str());
  EXPECT_EQ(behind.status, "ok") << text_of(behind);
  const auto narrow = take_tickets("membar.cta;\n", "membar.cta;\n");
  EXPECT_EQ(severity(narrow, "global-race"), "error") << text_of(narrow);
}

// Thread 0 releases 1 to a flag; a second warp makes it 2 by `between`; a third acquires the 2.
LaunchReport replace_flag(const std::string& between, bool in_shared) {
  const std::string space = in_shared ? "shared" : "global", flag = in_shared ? "flag" : "%d1";
  PtxProgram p(
      "and.b32 %r1, %r0, 31;\nsetp.ne.u32 %p0, %r1, 0;\n@%p0 bra end;\n"
      "setp.eq.u32 %p1, %r0, 32;\nsetp.eq.u32 %p2, %r0, 64;\n@%p1 bra second;\n"
      "@%p2 bra third;\nst.global.u32 [%d0], 5;\n"
      "st.release.gpu." +
          space + ".u32 [" + flag +
          "], 1;\nbra end;\n"
          "second: ld.relaxed.gpu." +
          space + ".u32 %r2, [" + flag +
          "];\n"
          "setp.ne.u32 %p3, %r2, 1;\n@%p3 bra second;\n" +
          between +
          "bra end;\n"
          "third: ld.acquire.gpu." +
          space + ".u32 %r2, [" + flag +
          "];\n"
          "setp.ne.u32 %p3, %r2, 2;\n@%p3 bra third;\nld.global.u32 %r3, [%d0];\nend:\n",
      checked("random"), ".shared .u32 flag;\n");
  return p.launch(p.buffer("out", std::vector<uint32_t>(1)),
                  p.buffer("in", std::vector<uint32_t>(1)), 96);
}

TEST(Flags, AStoreThatReplacesAReleaseEndsIt) {
  const auto stored = replace_flag("st.relaxed.gpu.global.u32 [%d1], 2;\n", false);
  EXPECT_EQ(severity(stored, "global-race"), "error") << text_of(stored);
  const auto added = replace_flag("red.relaxed.gpu.global.add.u32 [%d1], 1;\n", false);
  EXPECT_EQ(added.status, "ok") << text_of(added);
  const auto released =
      replace_flag("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%d1], 2;\n", false);
  EXPECT_EQ(released.status, "ok") << text_of(released);
  const auto in_shared = replace_flag("st.relaxed.gpu.shared.u32 [flag], 2;\n", true);
  EXPECT_EQ(severity(in_shared, "global-race"), "error") << text_of(in_shared);
}

// A later store of the same warp belongs to its release.
TEST(Flags, AStoreBehindOnesOwnReleaseGoesOnWithIt) {
  PtxProgram p(
      "setp.eq.u32 %p1, %r0, 32;\n@%p1 bra other;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra end;\n"
      "st.global.u32 [%d0], 5;\nst.release.gpu.global.u32 [%d1], 1;\n"
      "st.relaxed.gpu.global.u32 [%d1], 2;\nbra end;\n"
      "other: ld.acquire.gpu.global.u32 %r2, [%d1];\nsetp.ne.u32 %p3, %r2, 2;\n"
      "@%p3 bra other;\nld.global.u32 %r3, [%d0];\nend:\n",
      checked("random"));
  const auto report = p.launch(p.buffer("out", std::vector<uint32_t>(1)),
                               p.buffer("in", std::vector<uint32_t>(1)), 64);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

}  // namespace
}  // namespace ptxemu
