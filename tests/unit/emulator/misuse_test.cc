// What the manual leaves undefined, and peers that run no longer or not yet.
#include "checked_program.h"

namespace ptxemu {
namespace {

LaunchReport run(const std::string& body, const std::string& head, uint32_t threads,
                 uint32_t cluster = 1, const char* policy = "eager") {
  PtxProgram p(body, checked(policy), head);
  return p.launch(p.buffer("out", std::vector<uint32_t>(256)),
                  p.buffer("in", std::vector<uint32_t>(64)), threads, cluster, cluster);
}

constexpr const char* kHead =
    ".shared .align 8 .b64 bar;\n.shared .align 16 .b8 word[16];\n.shared .align 128 .b8 "
    "box[128];\n.shared .align 8 .u32 tmem;\n";
constexpr const char* kMeet = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";

// --- Whole warps --------------------------------------------------------------------------------

TEST(AlignedInstructions, AreExecutedByWholeWarps) {
  const std::string some = "setp.lt.u32 %p0, %r0, 16;\nsetp.lt.u32 %p1, %r0, 32;\n";
  for (const char* bar : {"@%p0 bar.sync 0;\n", "@!%p0 bar.sync 0;\n",
                          "@!%p0 bra past;\nbar.sync 0;\npast: mov.u32 %r1, 0;\n"}) {
    const auto report = run(some + bar + "st.global.u32 [%d0], 1;\n", kHead, 32);
    EXPECT_EQ(severity(report, "not-converged"), "error") << bar << text_of(report);
  }
  for (const char* bar : {"bar.sync 0;\n", "@%p1 bar.sync 1, 32;\n"}) {
    const auto report = run(some + bar, kHead, 64);
    EXPECT_EQ(report.status, "ok") << bar << text_of(report);
  }
}

// --- Shared memory ------------------------------------------------------------------------------

TEST(SharedAtomics, RaceWithPlainAccesses) {
  const auto with = [](const char* between, const char* plain) {
    return run(
        "mov.u32 %r1, word;\nsetp.lt.u32 %p0, %r0, 32;\nsetp.eq.u32 %p1, %r0, 32;\n"
        "setp.eq.u32 %p2, %r0, 0;\n@%p2 st.shared.u32 [%r1], 0;\nbar.sync 0;\n"
        "@%p0 red.shared.add.u32 [%r1], 1;\n" +
            std::string(between) + plain,
        kHead, 64);
  };
  const char* store = "@%p1 st.shared.u32 [%r1], 5;\n";
  const char* load = "@%p1 ld.shared.u32 %r2, [%r1];\n";
  EXPECT_EQ(with("bar.sync 0;\n", store).status, "ok");
  EXPECT_EQ(with("", "@%p1 red.shared.add.u32 [%r1], 5;\n").status, "ok");
  const auto race = with("", store);
  EXPECT_EQ(severity(race, "shared-race"), "error") << text_of(race);
  // A loop of compare-and-swap begins with such a read.
  const auto read = with("", load);
  EXPECT_EQ(severity(read, "shared-race"), "formal") << text_of(read);
}

// The sums of two warps come in any order.
TEST(SharedAtomics, ThatAddFloatsInNoFixedOrderAreReported) {
  const auto with = [](const char* first, const char* second) {
    return run(
        "setp.eq.u32 %p0, %r0, 0;\nsetp.lt.u32 %p1, %r0, 32;\nmov.u32 %r1, word;\n"
        "@%p0 st.shared.f32 [%r1], 0f00000000;\nbar.sync 0;\n" +
            std::string(first) + second,
        kHead, 64);
  };
  const char* mine = "@%p1 red.shared.add.f32 [%r1], 0f3f800000;\n";
  const char* others = "@!%p1 red.shared.add.f32 [%r1], 0f3f800000;\n";
  const auto open = with(mine, others);
  EXPECT_EQ(severity(open, "order_dependent"), "formal") << text_of(open);
  EXPECT_TRUE(open.passed()) << text_of(open);
  const auto turns = with(mine, (std::string("bar.sync 0;\n") + others).c_str());
  EXPECT_TRUE(turns.findings.empty()) << text_of(turns);
  const auto one_warp = with(mine, mine);
  EXPECT_TRUE(one_warp.findings.empty()) << text_of(one_warp);
  const auto integers = with("red.shared.add.u32 [%r1], 1;\n", "");
  EXPECT_TRUE(integers.findings.empty()) << text_of(integers);
}

// All warps add to a word that warp 0 has stored to, and which it is the first to add to.
TEST(SharedAtomics, RaceWithTheStoreBeforeTheirOwn) {
  const auto with = [](const std::string& before, const char* policy) {
    return run("mov.u32 %r1, word;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [%r1], 0;\n" +
                   before + "atom.shared.add.u32 %r2, [%r1], 1;\n",
               kHead, 96, 1, policy);
  };
  for (const char* policy : {"eager", "late"}) {
    const auto race = with("", policy);
    EXPECT_EQ(severity(race, "shared-race"), "error") << policy << text_of(race);
    const auto good = with("bar.sync 0;\n", policy);
    EXPECT_TRUE(good.findings.empty()) << policy << text_of(good);
  }
}

TEST(Mbarriers, AreTouchedByTheirOwnOperationsOnly) {
  const std::string init = "mov.u32 %r1, bar;\nmbarrier.init.shared::cta.b64 [%r1], 1;\n";
  const std::string store = "mov.b64 %d3, 0;\nst.shared.b64 [%r1], %d3;\n";
  const auto good = run(init + "mbarrier.inval.shared::cta.b64 [%r1];\n" + store, kHead, 1);
  EXPECT_EQ(good.status, "ok") << text_of(good);
  for (const std::string& access : {store, std::string("ld.shared.b64 %d3, [%r1];\n")}) {
    const auto report = run(init + access, kHead, 1);
    EXPECT_EQ(severity(report, "mbarrier-access"), "error") << text_of(report);
  }
  // A copy that is 16 bytes too long.
  const auto copy = run(init +
                            "mov.u32 %r2, box;\nmbarrier.init.shared::cta.b64 [%r2+64], 1;\n"
                            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 80;\n"
                            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], "
                            "[%d1], 80, [%r1];\n"
                            "wait: mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r1], 0;\n"
                            "@!%p0 bra wait;\n",
                        kHead, 1);
  EXPECT_EQ(severity(copy, "mbarrier-access"), "error") << text_of(copy);
}

TEST(Mbarriers, APhaseIsObservedBeforeAnArrivalInTheNext) {
  const std::string init = "mov.u32 %r1, bar;\nmbarrier.init.shared::cta.b64 [%r1], 1;\n";
  const std::string arrive = "mbarrier.arrive.shared::cta.b64 _, [%r1];\n";
  const auto good =
      run(init + arrive + "mbarrier.test_wait.parity.shared::cta.b64 %p0, [%r1], 0;\n" + arrive,
          kHead, 1);
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto bare = run(init + arrive + arrive, kHead, 1);
  EXPECT_EQ(severity(bare, "phase-unobserved"), "formal") << text_of(bare);
}

TEST(SharedCta, IsTheExecutingCtasMemory) {
  const auto with = [](const char* access) {
    return run(std::string(kMeet) +
                   "mov.u32 %r1, word;\nmov.u32 %r2, %cluster_ctarank;\nxor.b32 %r3, %r2, 1;\n"
                   "mapa.shared::cluster.u32 %r4, %r1, %r3;\n" +
                   access + kMeet,
               kHead, 1, 2);
  };
  EXPECT_EQ(with("st.shared::cluster.u32 [%r4], 5;\n").status, "ok");
  const auto store = with("st.shared::cta.u32 [%r4], 5;\n");
  EXPECT_EQ(severity(store, "not-own-shared"), "error") << text_of(store);
}

// --- Copies and stores that go to a peer --------------------------------------------------------

TEST(RemoteStores, NeedAClusterOfSeveralCtas) {
  const auto with = [](uint32_t cluster) {
    return run(
        "mov.u32 %r1, bar;\nmov.u32 %r2, word;\nmov.u32 %r3, %cluster_ctarank;\n"
        "mov.u32 %r4, %cluster_nctarank;\nsub.u32 %r4, %r4, 1;\nxor.b32 %r4, %r3, %r4;\n"
        "mbarrier.init.shared::cta.b64 [%r1], 1;\n" +
            std::string(kMeet) +
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 4;\n"
            "mapa.shared::cluster.u32 %r5, %r2, %r4;\n"
            "mapa.shared::cluster.u32 %r6, %r1, %r4;\n"
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], 7, [%r6];\n"
            "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r1], 0;\n"
            "@!%p0 bra wait;\n" +
            kMeet,
        kHead, 1, cluster);
  };
  EXPECT_EQ(with(2).status, "ok") << text_of(with(2));
  const auto alone = with(1);
  EXPECT_EQ(severity(alone, "remote-store-alone"), "error") << text_of(alone);
}

// 16 bytes from shared memory to that of CTA rank %r4, whose barrier counts them.
LaunchReport copy_to(const char* rank, const char* barrier_rank) {
  return run(
      "mov.u32 %r1, bar;\nmov.u32 %r2, word;\nmov.u32 %r7, box;\n"
      "mov.u32 %r3, %cluster_ctarank;\nmbarrier.init.shared::cta.b64 [%r1], 1;\n"
      "st.shared.v4.u32 [%r2], {1, 2, 3, 4};\nfence.proxy.async.shared::cta;\n" +
          std::string(kMeet) + "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\n" +
          "xor.b32 %r4, %r3, " + rank + ";\nxor.b32 %r8, %r3, " + barrier_rank +
          ";\nmapa.shared::cluster.u32 %r5, %r7, %r4;\n"
          "mapa.shared::cluster.u32 %r6, %r1, %r8;\n"
          "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], "
          "[%r2], 16, [%r6];\n"
          "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r1], 0;\n"
          "@!%p0 bra wait;\n" +
          kMeet,
      kHead, 1, 2);
}

TEST(BulkCopies, FromSharedMemoryGoToAnotherCta) {
  const auto good = copy_to("1", "1");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto own = copy_to("0", "0");
  EXPECT_EQ(severity(own, "copy-to-own-cta"), "formal") << text_of(own);
}

TEST(BulkCopies, SignalAnMbarrierOfTheDestination) {
  const auto report = copy_to("1", "0");
  EXPECT_EQ(severity(report, "bulk-barrier"), "formal") << text_of(report);
}

// --- Peers --------------------------------------------------------------------------------------

// CTA rank 1 uses rank 0 with `use`; nothing but `before` comes first.
LaunchReport use_peer(const std::string& before, const std::string& use,
                      const std::string& after = kMeet) {
  return run(
      "mov.u32 %r1, word;\nmov.u32 %r2, bar;\nmov.u32 %r3, %cluster_ctarank;\n"
      "setp.eq.u32 %p0, %r3, 1;\nmapa.shared::cluster.u32 %r4, %r1, 0;\n"
      "mapa.shared::cluster.u32 %r5, %r2, 0;\nsetp.eq.u32 %p3, %r0, 0;\n"
      "@%p3 mbarrier.init.shared::cta.b64 [%r2], 1;\n"
      "fence.mbarrier_init.release.cluster;\n" +
          before + use + after,
      kHead, 32, 2);
}

TEST(Peers, MustBeKnownToHaveStarted) {
  const std::string relaxed =
      "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n";
  for (const char* use : {"@%p0 st.shared::cluster.u32 [%r4], 5;\n",
                          "@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5], 1;\n",
                          "elect.sync _|%p1, -1;\nand.pred %p1, %p0, %p1;\nmov.u32 %r6, box;\n"
                          "mov.u16 %h1, 1;\n"
                          "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
                          "multicast::cluster [%r6], [%d1], 16, [%r2], %h1;\n"}) {
    const auto good = use_peer(relaxed, use);
    EXPECT_EQ(severity(good, "peer-before-barrier"), "") << use << text_of(good);
    const auto bare = use_peer("nanosleep.u32 100;\n", use);
    EXPECT_EQ(severity(bare, "peer-before-barrier"), "error") << use << text_of(bare);
  }
}

TEST(Peers, KnownThroughAnotherWarpOfTheCta) {
  const auto report =
      run("mov.u32 %r1, word;\nmov.u32 %r3, %cluster_ctarank;\nsetp.eq.u32 %p0, %r3, 1;\n"
          "setp.eq.and.u32 %p1, %r0, 32, %p0;\nmapa.shared::cluster.u32 %r4, %r1, 0;\n"
          "barrier.cluster.arrive.aligned;\nsetp.ge.u32 %p2, %r0, 32;\n@%p2 bra second;\n"
          "barrier.cluster.wait.aligned;\nsecond: bar.sync 0;\n"
          "@%p1 st.shared::cluster.u32 [%r4], 5;\n@!%p2 bra meet;\nbarrier.cluster.wait.aligned;\n"
          "meet:\n" +
              std::string(kMeet),
          kHead, 64, 2);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

TEST(Peers, APairsAllocationBeforeTheyMeetIsFormal) {
  const auto with = [](const char* before) {
    return run(std::string(before) +
                   "mov.u32 %r1, tmem;\n"
                   "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 32;\n"
                   "ld.shared.u32 %r2, [%r1];\n" +
                   kMeet + "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r2, 32;\n",
               kHead, 32, 2);
  };
  EXPECT_EQ(with(kMeet).status, "ok") << text_of(with(kMeet));
  const auto early = with("");
  EXPECT_EQ(severity(early, "peer-before-barrier"), "formal") << text_of(early);
}

TEST(Peers, ThatHaveExitedAreNotUsed) {
  const std::string leave = std::string(kMeet) + "@!%p0 bra end;\n";
  const std::string use =
      "mov.u32 %r6, 0;\nspin: add.u32 %r6, %r6, 1;\nsetp.lt.u32 %p2, %r6, 4000;\n@%p2 bra spin;\n"
      "elect.sync _|%p1, -1;\n@%p1 st.shared::cluster.u32 [%r4], 5;\n";
  const auto exited = use_peer(leave, use, "end:\n");
  EXPECT_EQ(severity(exited, "exited-cta"), "error") << text_of(exited);
  const auto good = use_peer(kMeet,
                             "elect.sync _|%p1, -1;\nand.pred %p1, %p0, %p1;\n"
                             "@%p1 st.shared::cluster.u32 [%r4], 5;\n");
  EXPECT_EQ(good.status, "ok") << text_of(good);
}

// However late the peer ends in this run.
TEST(Peers, MustNotEndBeforeTheyAreKnownToHaveBeenUsed) {
  const std::string other =
      "mapa.shared::cluster.u32 %r4, %r1, %r5;\nelect.sync _|%p1, -1;\n"
      "and.pred %p1, %p0, %p1;\n";
  const char* relaxed = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n";
  for (const char* use :
       {"@%p1 st.shared::cluster.u32 [%r4], 5;\n", "@%p1 ld.shared::cluster.u32 %r6, [%r4];\n",
        "@%p1 atom.shared::cluster.add.u32 %r6, [%r4], 1;\n"}) {
    const auto with = [&](const char* policy, const char* end) {
      return run(
          "mov.u32 %r1, word;\nmov.u32 %r3, %cluster_ctarank;\nxor.b32 %r5, %r3, 1;\n"
          "setp.eq.u32 %p0, %r3, 1;\nst.shared.u32 [%r1], 0;\n" +
              std::string(kMeet) + other + use + end,
          kHead, 32, 2, policy);
    };
    for (const char* policy : {"eager", "late", "random"}) {
      const auto report = with(policy, "");
      EXPECT_EQ(severity(report, "exited-cta"), "error") << use << text_of(report);
      for (const char* end : {kMeet, relaxed}) {
        const auto good = with(policy, end);
        EXPECT_EQ(severity(good, "exited-cta"), "") << use << text_of(good);
      }
    }
  }
}

// CTA rank 0 commits to the barriers of `mask`, whose CTAs have ended.
LaunchReport commit_late(const char* mask, uint32_t cluster) {
  return run(
      "mov.u32 %r2, bar;\nmov.u32 %r3, %cluster_ctarank;\nsetp.eq.u32 %p0, %r3, 0;\n"
      "setp.eq.u32 %p3, %r0, 0;\n@%p3 mbarrier.init.shared::cta.b64 [%r2], 1;\n"
      "fence.mbarrier_init.release.cluster;\n" +
          std::string(kMeet) +
          "@!%p0 bra end;\nmov.u32 %r6, 0;\nspin: add.u32 %r6, %r6, 1;\n"
          "setp.lt.u32 %p2, %r6, 4000;\n@%p2 bra spin;\nmov.u16 %h1, " +
          mask +
          ";\n@%p3 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster."
          "multicast::cluster.b64 [%r2], %h1;\nend:\n",
      kHead, 32, cluster);
}

TEST(Peers, ACommitToThePairAfterItsEndIsFormal) {
  const auto pair = commit_late("3", 4);
  EXPECT_EQ(severity(pair, "exited-cta"), "formal") << text_of(pair);
  const auto other = commit_late("4", 4);
  EXPECT_EQ(severity(other, "exited-cta"), "error") << text_of(other);
}

// --- Registers ----------------------------------------------------------------------------------

TEST(Setmaxnreg, IsExecutedByAWholeWarpgroup) {
  const auto with = [](const std::string& body, uint32_t threads = 128) {
    PtxProgram p("setp.lt.u32 %p0, %r0, 32;\n" + body, checked());
    return p.launch(p.buffer("out", 16), 0, threads);
  };
  const std::string dec = "setmaxnreg.dec.sync.aligned.u32 40;\n";
  const std::string inc = "setmaxnreg.inc.sync.aligned.u32 120;\n";
  const auto rule = "setmaxnreg-warpgroup";
  const auto good = with(dec + "bar.sync 0;\n" + inc);
  EXPECT_EQ(severity(good, rule), "") << text_of(good);
  const auto small = with(dec, 96);
  EXPECT_EQ(severity(small, rule), "") << text_of(small);
  const auto one = with("@!%p0 bra end;\n" + dec + "end:\n");
  EXPECT_EQ(severity(one, rule), "error") << text_of(one);
  const auto unmet = with(dec + inc);
  EXPECT_EQ(severity(unmet, rule), "error") << text_of(unmet);
  const auto same = with(dec + dec);
  EXPECT_EQ(severity(same, rule), "formal") << text_of(same);
  const auto unequal = with("@!%p0 bra other;\n" + dec +
                            "bra end;\nother: setmaxnreg.dec.sync.aligned.u32 48;\nend:\n");
  EXPECT_EQ(severity(unequal, rule), "formal") << text_of(unequal);
}

// --- Tensor memory ------------------------------------------------------------------------------

TEST(TensorLanes, OfAnotherWarpsQuarterAreFormal) {
  const auto with = [](const char* lane) {
    return run(
        "setp.lt.u32 %p0, %r0, 32;\nmov.u32 %r1, tmem;\n"
        "@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;\nbar.sync 0;\n"
        "ld.shared.u32 %r2, [%r1];\nand.b32 %r4, %r0, 96;\nshl.b32 %r4, %r4, 16;\n" +
            std::string(lane) +
            "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r4], {%r0};\n"
            "tcgen05.wait::st.sync.aligned;\nbar.sync 0;\n"
            "@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n",
        kHead, 64);
  };
  EXPECT_EQ(with("add.u32 %r4, %r4, %r2;\n").status, "ok");
  const auto report = with("mov.u32 %r4, %r2;\n");
  EXPECT_EQ(severity(report, "tmem-lanes"), "formal") << text_of(report);
}

// --- Global memory ------------------------------------------------------------------------------

TEST(ReadOnlyLoads, AreOfMemoryThatTheKernelDoesNotWrite) {
  const auto with = [](const char* load) {
    PtxProgram p(std::string("st.global.u32 [%d0], 7;\n") + load + "st.global.u32 [%d0+8], %r1;\n",
                 checked());
    return p.launch(p.buffer("out", 64), p.buffer("in", std::vector<uint32_t>(4)), 1);
  };
  EXPECT_EQ(with("ld.global.u32 %r1, [%d0];\n").status, "ok");
  EXPECT_EQ(with("ld.global.nc.u32 %r1, [%d1];\n").status, "ok");
  const auto report = with("ld.global.nc.u32 %r1, [%d0];\n");
  EXPECT_EQ(severity(report, "read-only-written"), "error") << text_of(report);
}

TEST(SecondStores, OfTheSameValueByTwoCtasAreFormal) {
  const auto with = [](const char* value) {
    PtxProgram p("mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, 9;\n" + std::string(value) +
                     "st.global.v2.u32 [%d0], {%r2, %r2};\n",
                 checked());
    return p.launch(p.buffer("out", 64), 0, 1, 3);
  };
  const auto same = with("");
  EXPECT_EQ(severity(same, "global-race"), "formal") << text_of(same);
  const auto other = with("mov.u32 %r2, %r1;\n");
  EXPECT_EQ(severity(other, "global-race"), "error") << text_of(other);
}

TEST(SecondStores, OfTheSameValueByTwoWarpsAreFormal) {
  const auto with = [](const char* value, const char* store) {
    return run(
        "shr.u32 %r3, %r0, 5;\nmov.u32 %r1, word;\nmov.u32 %r2, 9;\n" + std::string(value) + store,
        kHead, 64);
  };
  const char* differs = "mov.u32 %r2, %r3;\n";
  for (const auto& [store, rule] :
       {std::pair{"st.shared.v2.u32 [%r1], {%r0, %r2};\n", "shared-race"},
        {"st.shared.v2.u32 [%r1], {%r2, %r2};\n", "shared-race"},
        {"st.global.v2.u32 [%d0], {%r2, %r2};\n", "global-race"}}) {
    const auto same = with("and.b32 %r0, %r0, 31;\n", store);
    EXPECT_EQ(severity(same, rule), "formal") << store << text_of(same);
    const auto other = with(differs, store);
    EXPECT_EQ(severity(other, rule), "error") << store << text_of(other);
  }
}

// What comes there later, ordered after both, is no other value of theirs.
TEST(SecondStores, AreComparedBeforeACopyFollows) {
  for (const char* policy : {"eager", "late"}) {
    const auto report = run(
        "mov.u32 %r1, box;\nmov.u32 %r2, bar;\nsetp.eq.u32 %p0, %r0, 32;\n"
        "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\nst.shared.u32 [%r1], 9;\n"
        "fence.proxy.async.shared::cta;\nbar.sync 0;\n@!%p0 bra wait;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n"
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r2];\n"
        "wait: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;\n@!%p1 bra wait;\n",
        kHead, 64, 1, policy);
    EXPECT_EQ(severity(report, "shared-race"), "formal") << policy << text_of(report);
  }
}

// cuDNN's forward and flash-attn-4's backward store their tiles with all lanes of a warp.
TEST(SecondStores, OfLanesThatCopyTheSameTileAreFormal) {
  const auto with = [](const char* second) {
    return run(
        "mov.u32 %r1, word;\nsetp.eq.u32 %p0, %r0, 0;\nmov.b32 %r2, 7;\n"
        "@%p0 st.shared.v4.b32 [%r1], {%r2, %r2, %r2, %r2};\n"
        "@%p0 fence.proxy.async.shared::cta;\nbar.sync 0;\n"
        "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\n" +
            std::string(second) + "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n",
        kHead, 32, 1, "random");
  };
  const auto lanes = with("");
  EXPECT_EQ(severity(lanes, "global-race"), "formal") << text_of(lanes);
  const auto statements =
      with("@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\n");
  EXPECT_EQ(severity(statements, "global-race"), "error") << text_of(statements);
}

// Each of two warps copies 16 bytes of its own, of which the first word is 0 or the warp's number.
TEST(SecondStores, OfCopiesThatDifferAreErrors) {
  const auto with = [](const char* value, const char* policy) {
    return run("shr.u32 %r3, %r0, 5;\nmov.u32 %r4, 0;\n" + std::string(value) +
                   "mov.u32 %r1, box;\nshl.b32 %r2, %r3, 4;\nadd.u32 %r1, %r1, %r2;\n"
                   "and.b32 %r2, %r0, 31;\nsetp.eq.u32 %p0, %r2, 0;\nmov.b32 %r2, 7;\n"
                   "@%p0 st.shared.v4.b32 [%r1], {%r4, %r2, %r2, %r2};\n"
                   "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
                   "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\n"
                   "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n",
               kHead, 64, 1, policy);
  };
  for (const char* policy : {"eager", "late", "random", "split"}) {
    const auto same = with("", policy);
    EXPECT_EQ(severity(same, "global-race"), "formal") << policy << text_of(same);
    const auto other = with("mov.u32 %r4, %r3;\n", policy);
    EXPECT_EQ(severity(other, "global-race"), "error") << policy << text_of(other);
  }
}

// Two statements are two, however they stand in the text.
TEST(SecondStores, AreOfOneStatementNotOfOneLine) {
  const std::string head = "setp.lt.u32 %p0, %r0, 32;\nmov.u32 %r1, word;\n";
  for (const char* gap : {" ", "\n"}) {
    for (const auto& [first, second, rule] :
         {std::tuple{"@%p0 st.shared.u32 [%r1], 7;", "@!%p0 atom.shared.add.u32 %r2, [%r1], 1;",
                     "shared-race"},
          {"@%p0 st.shared.u32 [%r1], 7;", "@!%p0 st.shared.u32 [%r1], 7;", "shared-race"},
          {"@%p0 st.global.u32 [%d0], 7;", "@!%p0 atom.global.add.u32 %r2, [%d0], 1;",
           "global-race"},
          {"@%p0 st.global.u32 [%d0], 7;", "@!%p0 st.global.u32 [%d0], 7;", "global-race"}}) {
      const auto report = run(head + first + gap + second + "\n", kHead, 64);
      EXPECT_EQ(severity(report, rule), "error") << first << gap << second << text_of(report);
    }
  }
}

TEST(Counts, AreOfStatements) {
  PtxProgram p(
      "mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %d2, %r0, 16;\nadd.u64 %d2, %d0, %d2;\n"
      "st.global.v4.u32 [%d2], {%r1, %r1, %r1, %r1};\n",
      checked());
  const auto report = p.launch(p.buffer("out", 512), 0, 32, 3);
  ASSERT_EQ(report.findings.size(), 1u) << text_of(report);
  EXPECT_EQ(report.findings[0].count, 2u);
}

TEST(Counts, OfWarpsThatReadSharedMemoryAreOfStatements) {
  const auto report =
      run("mov.u32 %r1, box;\nand.b32 %r2, %r0, 31;\nshl.b32 %r2, %r2, 2;\nadd.u32 %r1, %r1, %r2;\n"
          "setp.lt.u32 %p0, %r0, 32;\n@%p0 st.shared.u32 [%r1], 1;\n"
          "@!%p0 ld.shared.u32 %r3, [%r1];\n",
          kHead, 96);
  ASSERT_EQ(severity(report, "shared-race"), "error") << text_of(report);
  for (const auto& f : report.findings) {
    if (f.rule != "shared-race") continue;
    EXPECT_EQ(f.count, 2u);
  }
}

}  // namespace
}  // namespace ptxemu
