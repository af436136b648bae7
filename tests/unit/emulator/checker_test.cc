// The checker's rules: a small program that breaks each, and one beside it that does not.
#include "checked_program.h"

namespace ptxemu {
namespace {

// --- try_wait -----------------------------------------------------------------------------------

constexpr const char* kTwoBarriers = ".shared .align 8 .b64 bars[4];\n.shared .u32 flag;\n";

// Warp 0 polls two barriers in turn; warp 1 signals the first only after warp 0 has seen the
// second.
std::string polls_two(const char* last_arrival) {
  return std::string(
             "mov.u32 %r1, bars;\nsetp.ge.u32 %p0, %r0, 32;\nsetp.ne.u32 %p1, %r0, 0;\n"
             "@!%p1 mbarrier.init.shared.b64 [%r1], 1;\n"
             "@!%p1 mbarrier.init.shared.b64 [%r1+8], 1;\n"
             "@!%p1 mbarrier.init.shared.b64 [%r1+16], 32;\nbar.sync 0;\n@%p0 bra other;\n"
             "poll: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;\n@%p2 bra done;\n"
             "mbarrier.try_wait.parity.shared.b64 %p3, [%r1+8], 0;\n@!%p3 bra poll;\n"
             "setp.eq.u32 %p4, %r9, 1;\n@%p4 bra poll;\nmov.u32 %r9, 1;\n"
             "mbarrier.arrive.shared.b64 _, [%r1+16];\nbra poll;\n"
             "other: @!%p1 bra done;\nsetp.eq.u32 %p5, %r0, 32;\n"
             "@%p5 mbarrier.arrive.shared.b64 _, [%r1+8];\n"
             "wait: mbarrier.try_wait.parity.shared.b64 %p6, [%r1+16], 0;\n"
             "@!%p6 bra wait;\n") +
         last_arrival + "done:\n";
}

TEST(TryWait, GivesUpSoThatTwoBarriersCanBePolled) {
  for (const char* policy : {"eager", "late", "random", "split"}) {
    PtxProgram p("mov.u32 %r9, 0;\n" + polls_two("@%p5 mbarrier.arrive.shared.b64 _, [%r1];\n"),
                 checked(policy), kTwoBarriers);
    const auto report = p.launch(p.buffer("out", 16), 0, 64);
    EXPECT_EQ(report.status, "ok") << policy << text_of(report);
  }
}

TEST(TryWait, PollingWhatNeverComesIsADeadlock) {
  for (const char* policy : {"eager", "late", "random", "split"}) {
    PtxProgram p("mov.u32 %r9, 0;\n" + polls_two(""), checked(policy), kTwoBarriers);
    const auto report = p.launch(p.buffer("out", 16), 0, 64);
    ASSERT_EQ(report.status, "deadlock") << policy << text_of(report);
    EXPECT_NE(report.deadlock[0].waits_on.find("bars"), std::string::npos) << text_of(report);
  }
}

// Warp 0 hands 64 words to warp 1, which adds them up. `after_try` comes after each of its tries.
LaunchReport hand_words(const MachineOptions& options, const char* after_try, uint32_t* sum) {
  PtxProgram p(
      "mov.u32 %r1, bars;\nsetp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, %r0, 32;\n"
      "@%p0 mbarrier.init.shared.b64 [%r1], 1;\n@%p0 mbarrier.init.shared.b64 [%r1+8], 1;\n"
      "bar.sync 0;\nmov.u32 %r8, 0;\nmov.u32 %r6, 0;\n@%p1 bra get;\n@!%p0 bra end;\n"
      "put: st.shared.u32 [word], %r8;\nmbarrier.arrive.shared.b64 _, [%r1];\n"
      "and.b32 %r9, %r8, 1;\n"
      "empty: mbarrier.try_wait.parity.shared.b64 %p3, [%r1+8], %r9;\n@!%p3 bra empty;\n"
      "add.u32 %r8, %r8, 1;\nsetp.lt.u32 %p4, %r8, 64;\n@%p4 bra put;\nbra end;\n"
      "get: and.b32 %r9, %r8, 1;\n"
      "full: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r9;\n" +
          std::string(after_try) +
          "ld.shared.u32 %r5, [word];\nadd.u32 %r6, %r6, %r5;\n"
          "mbarrier.arrive.shared.b64 _, [%r1+8];\n"
          "add.u32 %r8, %r8, 1;\nsetp.lt.u32 %p4, %r8, 64;\n@%p4 bra get;\n"
          "st.global.u32 [%d0], %r6;\nend:\n",
      options, ".shared .align 8 .b64 bars[2];\n.shared .align 4 .u32 word;\n");
  const uint64_t out = p.buffer("out", 16);
  const auto report = p.launch(out, 0, 64);
  *sum = p.read<uint32_t>(out, 1)[0];
  return report;
}

TEST(TryWait, ThatGivesUpIsNotDone) {
  constexpr uint32_t kSum = 64 * 63 / 2;
  for (const char* policy : {"eager", "late", "random", "split"}) {
    MachineOptions options = checked(policy);
    const bool gives_up = policy[0] == 'r' || policy[0] == 's';
    int wrong = 0;
    for (options.seed = 1; options.seed <= 4; ++options.seed) {
      uint32_t sum = 0;
      options.check = true;
      const auto right = hand_words(options, "@!%p3 bra full;\n", &sum);
      EXPECT_EQ(right.status, "ok") << policy << options.seed << text_of(right);
      EXPECT_EQ(sum, kSum) << policy << options.seed;
      const auto once = hand_words(options, "", &sum);
      EXPECT_EQ(once.passed(), !gives_up) << policy << options.seed << text_of(once);
      options.check = false;
      const auto unchecked = hand_words(options, "", &sum);
      wrong += sum != kSum || unchecked.status != "ok";
    }
    EXPECT_EQ(wrong > 0, gives_up) << policy;
  }
}

// A wait that takes long gives up again and again.
TEST(TryWait, GivesUpWhileItWaits) {
  for (const char* policy : {"random", "split"}) {
    PtxProgram p(
        "mov.u32 %r1, bars;\nsetp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, %r0, 32;\n"
        "@%p0 mbarrier.init.shared.b64 [%r1], 1;\nbar.sync 0;\nmov.u32 %r8, 0;\n"
        "@%p1 bra full;\n@!%p0 bra end;\n"
        "work: st.shared.u32 [word], %r8;\nadd.u32 %r8, %r8, 1;\nsetp.lt.u32 %p4, %r8, 9999;\n"
        "@%p4 bra work;\nmbarrier.arrive.shared.b64 _, [%r1];\nbra end;\n"
        "full: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0;\n"
        "@!%p3 add.u32 %r8, %r8, 1;\n@!%p3 bra full;\nst.global.u32 [%d0], %r8;\nend:\n",
        checked(policy), ".shared .align 8 .b64 bars[1];\n.shared .align 4 .u32 word;\n");
    const uint64_t out = p.buffer("out", 16);
    const auto report = p.launch(out, 0, 64);
    EXPECT_EQ(report.status, "ok") << policy << text_of(report);
    const uint32_t tries = p.read<uint32_t>(out, 1)[0];
    EXPECT_GT(tries, 8u) << policy;
    EXPECT_LT(tries, 200u) << policy;
  }
}

// --- Words that warps exchange ------------------------------------------------------------------

// Each round warp 0 writes a word that warp 1 reads after a barrier; nothing but `between` comes
// before it writes again.
LaunchReport run_exchange(const char* between) {
  const std::string body =
      "mov.u32 %r1, bars;\nsetp.lt.u32 %p0, %r0, 32;\nsetp.eq.u32 %p1, %r0, 0;\n"
      "@%p1 mbarrier.init.shared.b64 [%r1], 1;\nmov.u32 %r9, 0;\nmov.u32 %r8, 0;\nbar.sync 0;\n"
      "round: @%p1 st.shared.u32 [flag], %r9;\nbar.sync 0;\n@!%p0 ld.shared.u32 %r2, [flag];\n" +
      std::string(between) + "add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p2, %r9, 3;\n@%p2 bra round;\n";
  PtxProgram p(body, checked(), std::string(kTwoBarriers) + ".shared .align 16 .b8 box[16];\n");
  return p.launch(p.buffer("out", 16), p.buffer("in", 16), 64);
}

TEST(Exchange, ASecondBarrierMustComeBetween) {
  EXPECT_EQ(run_exchange("bar.sync 0;\n").status, "ok");
  const auto bare = run_exchange("");
  EXPECT_EQ(severity(bare, "shared-race"), "error") << text_of(bare);
  const auto waited = run_exchange(
      "mov.u32 %r3, box;\n@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;\n"
      "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%d1], 16, "
      "[%r1];\n"
      "wait: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r8;\n@!%p3 bra wait;\n"
      "xor.b32 %r8, %r8, 1;\n");
  EXPECT_EQ(severity(waited, "shared-race"), "error") << text_of(waited);
}

// Warp 0 hands a word to warp 1 with a relaxed flag.
LaunchReport run_flag(const char* before, const char* after) {
  const std::string body =
      "setp.eq.u32 %p0, %r0, 0;\nsetp.ne.u32 %p1, %r0, 32;\n@%p0 st.shared.u32 [flag], 0;\n"
      "bar.sync 0;\n@!%p0 bra other;\nst.shared.u32 [cell], 7;\n" +
      std::string(before) + "st.relaxed.cta.shared.u32 [flag], 1;\n" +
      "other: @%p1 bra end;\nwait: ld.relaxed.cta.shared.u32 %r2, [flag];\n"
      "setp.eq.u32 %p2, %r2, 0;\n@%p2 bra wait;\n" +
      std::string(after) + "ld.shared.u32 %r3, [cell];\nst.global.u32 [%d0], %r3;\nend:\n";
  PtxProgram p(body, checked("random"), ".shared .u32 flag;\n.shared .u32 cell;\n");
  return p.launch(p.buffer("out", 16), 0, 64);
}

TEST(Exchange, FencesAroundARelaxedFlagOrder) {
  const char* fence = "fence.acq_rel.cta;\n";
  const auto both = run_flag(fence, fence);
  EXPECT_EQ(both.status, "ok") << text_of(both);
  const auto first = run_flag(fence, "");
  EXPECT_EQ(severity(first, "shared-race"), "error") << text_of(first);
  const auto second = run_flag("", fence);
  EXPECT_EQ(severity(second, "shared-race"), "error") << text_of(second);
}

// --- Tensor memory ------------------------------------------------------------------------------

constexpr const char* kTmemHead = ".shared .align 8 .u32 tmem;\n.shared .align 8 .b64 bar;\n";
constexpr const char* kAlloc =
    "setp.lt.u32 %p0, %r0, 32;\nmov.u32 %r1, tmem;\n"
    "@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;\nbar.sync 0;\n"
    "ld.shared.u32 %r2, [tmem];\n";
constexpr const char* kDealloc =
    "bar.sync 0;\n@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n";
constexpr const char* kStore =
    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r0};\ntcgen05.wait::st.sync.aligned;\n";
constexpr const char* kLoad =
    "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r2];\ntcgen05.wait::ld.sync.aligned;\n";

LaunchReport run_tmem(const std::string& body, uint32_t threads = 32,
                      const char* policy = "eager") {
  PtxProgram p(body, checked(policy), kTmemHead);
  return p.launch(p.buffer("out", 4096), 0, threads);
}

TEST(TensorMemory, ReadsOfWhatNobodyHasWrittenSinceItsAllocation) {
  auto report = run_tmem(std::string(kAlloc) + kLoad + kDealloc);
  EXPECT_EQ(severity(report, "uninitialised-read"), "formal") << text_of(report);
  report = run_tmem(std::string(kAlloc) + kStore + kLoad + kDealloc);
  EXPECT_EQ(report.status, "ok") << text_of(report);
  // What an earlier allocation held does not count.
  report = run_tmem(std::string(kAlloc) + kStore + kDealloc + kAlloc + kLoad + kDealloc);
  EXPECT_EQ(severity(report, "uninitialised-read"), "formal") << text_of(report);
}

TEST(TensorMemory, LeaksAreFoundAtTheEnd) {
  const auto report = run_tmem(std::string(kAlloc) + kStore);
  EXPECT_EQ(severity(report, "tmem-leak"), "error") << text_of(report);
  EXPECT_EQ(severity(run_tmem(std::string(kAlloc) + kStore + kDealloc), "tmem-leak"), "");
}

// Warp 0 stores, warp 4 loads the same lanes.
std::string across(const char* before, const char* after) {
  return std::string(kAlloc) + "setp.ge.u32 %p1, %r0, 128;\n@!%p0 bra one;\n" + kStore + before +
         "one: bar.sync 1;\n@!%p1 bra two;\n" + after + kLoad + "two: bar.sync 0;\n" + kDealloc;
}

TEST(TensorMemory, FencesAroundWhatOrdersTwoWarps) {
  const char* before = "tcgen05.fence::before_thread_sync;\n";
  const char* after = "tcgen05.fence::after_thread_sync;\n";
  const auto fenced = run_tmem(across(before, after), 160);
  EXPECT_EQ(fenced.status, "ok") << text_of(fenced);
  for (const auto& body : {across("", after), across(before, ""), across("", "")}) {
    const auto report = run_tmem(body, 160);
    EXPECT_EQ(severity(report, "missing-tensor-fence"), "formal") << text_of(report);
    EXPECT_TRUE(report.passed());
  }
}

// The same by an arrival and a wait that order no memory by themselves.
std::string across_relaxed(const char* before, const char* after) {
  return std::string(kAlloc) +
         "setp.ge.u32 %p1, %r0, 128;\nsetp.eq.u32 %p2, %r0, 0;\n"
         "mov.u32 %r4, bar;\n@%p2 mbarrier.init.shared::cta.b64 [%r4], 1;\nbar.sync 0;\n"
         "@!%p0 bra one;\n" +
         kStore + before +
         "@%p2 mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r4];\none:\n"
         "@!%p1 bra two;\n"
         "poll: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p3, [%r4], 0;\n"
         "@!%p3 bra poll;\n" +
         after + kLoad + "two: bar.sync 0;\n" + kDealloc;
}

TEST(TensorMemory, FencesAroundARelaxedArrivalOrderIt) {
  const char* before = "tcgen05.fence::before_thread_sync;\n";
  const char* after = "tcgen05.fence::after_thread_sync;\n";
  const auto fenced = run_tmem(across_relaxed(before, after), 160);
  EXPECT_EQ(fenced.status, "ok") << text_of(fenced);
  for (const auto& body :
       {across_relaxed("", after), across_relaxed(before, ""), across_relaxed("", "")}) {
    const auto report = run_tmem(body, 160);
    EXPECT_EQ(severity(report, "tensor-race"), "error") << text_of(report);
  }
}

TEST(TensorMemory, AReadAfterItsReleaseIsAnErrorOnlyWhereTheReleaseComesFirst) {
  const std::string release = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n";
  const auto ordered = run_tmem(std::string(kAlloc) + kStore + release + kLoad);
  EXPECT_EQ(severity(ordered, "tmem-after-release"), "error") << text_of(ordered);
  // Warp 4 reads while warp 0 releases; it learns of the dealloc only afterwards.
  const auto racing =
      run_tmem(std::string(kAlloc) + "setp.ge.u32 %p1, %r0, 128;\n@!%p0 bra one;\n" + kStore +
                   "one: bar.sync 1;\n@!%p0 bra two;\n" + release +
                   "two: @!%p1 bra three;\nmov.u32 %r5, 0;\nspin: add.u32 %r5, %r5, 1;\n"
                   "setp.lt.u32 %p2, %r5, 2000;\n@%p2 bra spin;\n" +
                   kLoad + "three:\n",
               160);
  EXPECT_EQ(severity(racing, "tmem-after-release"), "formal") << text_of(racing);
}

// Warp 4 loads what warp 0 then releases.
TEST(TensorMemory, AReleaseComesAfterWhatOtherWarpsDidThere) {
  const auto with = [](const char* load, const char* between) {
    return run_tmem(std::string(kAlloc) + "setp.ge.u32 %p1, %r0, 128;\n@!%p0 bra one;\n" + kStore +
                        "one: bar.sync 1;\n@!%p1 bra two;\n" + load + "two:\n" + between +
                        "@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n",
                    160);
  };
  const auto rule = "tmem-after-release";
  const auto met = with(kLoad, "bar.sync 0;\n");
  EXPECT_EQ(severity(met, rule), "") << text_of(met);
  const auto unmet = with(kLoad, "");
  EXPECT_EQ(severity(unmet, rule), "formal") << text_of(unmet);
  // A copy of the register is no wait: ptxas may move it.
  const auto copied = with(
      "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r2];\nmov.u32 %r4, %r3;\n", "bar.sync 0;\n");
  EXPECT_EQ(severity(copied, rule), "formal") << text_of(copied);
}

// Warp 4 loads, warp 0 then stores over what it loaded.
TEST(TensorMemory, OnlyTheWaitTellsOtherWarpsThatALoadIsOver) {
  const auto with = [](const char* wait) {
    return run_tmem(std::string(kAlloc) + "setp.ge.u32 %p1, %r0, 128;\n@!%p0 bra one;\n" + kStore +
                        "one: bar.sync 1;\n@!%p1 bra two;\n"
                        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r2];\nmov.u32 %r4, %r3;\n" +
                        wait + "two: bar.sync 2;\n@!%p0 bra three;\n" + kStore + "three:\n" +
                        kDealloc,
                    160);
  };
  const auto rule = "load-not-waited";
  const auto waited = with("tcgen05.wait::ld.sync.aligned;\n");
  EXPECT_EQ(severity(waited, rule), "") << text_of(waited);
  const auto used = with("");
  EXPECT_EQ(severity(used, rule), "formal") << text_of(used);
}

// A 128 x 16 x 16 product of which only some lanes of the result are read, while a copy into rows
// 64 and on of A has not been waited for.
LaunchReport run_product(const char* reader, const char* scale = "setp.ne.u32 %p4, %r0, 0;\n") {
  // A: 128 rows of 32 bytes, B: 16; no swizzle: 8 x 16-byte cores, 128 bytes each; the second half
  // of K 128 bytes further, the next eight rows 256.
  const std::string body =
      std::string(kAlloc) +
      "setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r10, a;\nmov.u32 %r11, bar;\n"
      "@%p1 mbarrier.init.shared.b64 [%r11], 1;\n@%p1 mbarrier.init.shared.b64 [%r11+8], 1;\n"
      // Rows 0 to 63 of A and all of B with ordinary stores.
      "mov.u32 %r12, 0;\nshl.b32 %r13, %r0, 2;\nadd.u32 %r13, %r13, %r10;\n"
      "fill: st.shared.u32 [%r13], %r12;\nadd.u32 %r13, %r13, 512;\n"
      "add.u32 %r12, %r12, 1;\nsetp.lt.u32 %p2, %r12, 4;\n@%p2 bra fill;\n"
      "shl.b32 %r14, %r0, 2;\nmov.u32 %r15, b;\nadd.u32 %r14, %r14, %r15;\n"
      "st.shared.u32 [%r14], 0;\n"
      "fence.proxy.async.shared::cta;\nbar.sync 0;\n@!%p1 bra join;\n"
      "mbarrier.arrive.expect_tx.shared.b64 _, [%r11+8], 2048;\n"
      "add.u32 %r16, %r10, 2048;\nadd.u32 %r17, %r11, 8;\n"
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r16], [%d1], 2048, [%r17];\n"
      "shr.u32 %r18, %r10, 4;\ncvt.u64.u32 %d4, %r18;\nor.b64 %d4, %d4, 0x0000401000080000;\n"
      "shr.u32 %r18, %r15, 4;\ncvt.u64.u32 %d5, %r18;\nor.b64 %d5, %d5, 0x0000401000080000;\n" +
      std::string(scale) +
      "tcgen05.mma.cta_group::1.kind::f16 [%r2], %d4, %d5, 0x08040490, %p4;\n"
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];\n"
      "join: bar.warp.sync -1;\n"
      "w1: mbarrier.try_wait.parity.shared.b64 %p5, [%r11], 0;\n@!%p5 bra w1;\n"
      "w2: mbarrier.try_wait.parity.shared.b64 %p5, [%r11+8], 0;\n@!%p5 bra w2;\n"
      "tcgen05.fence::after_thread_sync;\nshr.u32 %r20, %r0, 5;\n" +
      std::string(reader) + "@!%p6 bra skip;\n" + kLoad +
      "tcgen05.fence::before_thread_sync;\nskip: bar.sync 0;\n" + kDealloc;
  PtxProgram p(body, checked(),
               ".shared .align 8 .u32 tmem;\n.shared .align 8 .b64 bar[2];\n"
               ".shared .align 1024 .b8 a[4096];\n.shared .align 1024 .b8 b[512];\n");
  return p.launch(p.buffer("out", 16), p.buffer("in", std::vector<uint32_t>(512)), 128);
}

TEST(Products, WhatTheyReadTooEarlyMattersWhereTheirResultDoes) {
  const auto unread = run_product("setp.lt.u32 %p6, %r20, 2;\n");
  EXPECT_EQ(severity(unread, "shared-race"), "formal") << text_of(unread);
  EXPECT_TRUE(unread.passed()) << text_of(unread);
  const auto read = run_product("setp.lt.u32 %p6, %r20, 3;\n");
  EXPECT_EQ(severity(read, "shared-race"), "error") << text_of(read);
}

TEST(Products, ThatAddToWhatNobodyHasWritten) {
  const auto report = run_product("setp.lt.u32 %p6, %r20, 2;\n", "setp.eq.u32 %p4, %r0, 0;\n");
  EXPECT_EQ(severity(report, "uninitialised-read"), "error") << text_of(report);
}

// --- Barriers -----------------------------------------------------------------------------------

TEST(Barriers, BytesThatAreLeftAreFoundAtTheEnd) {
  const std::string init = "mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 1;\n";
  PtxProgram p(init + "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;\n", checked(), kTmemHead);
  const auto missing = p.launch(p.buffer("out", 16), 0, 1);
  EXPECT_EQ(severity(missing, "bytes-left"), "formal") << text_of(missing);
  PtxProgram o(init + "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;\n", checked(),
               kTmemHead);
  const auto unexpected = o.launch(o.buffer("out", 16), 0, 1);
  EXPECT_EQ(severity(unexpected, "bytes-left"), "error") << text_of(unexpected);
  PtxProgram q(init + "mbarrier.arrive.shared.b64 _, [%r1];\n", checked(), kTmemHead);
  EXPECT_EQ(q.launch(q.buffer("out", 16), 0, 1).status, "ok");
}

TEST(Barriers, AnUnfinishedPhaseIsFoundAtTheEnd) {
  const std::string init = "mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 2;\n";
  PtxProgram p(init + "mbarrier.arrive.shared.b64 _, [%r1];\n", checked(), kTmemHead);
  const auto report = p.launch(p.buffer("out", 16), 0, 1);
  EXPECT_EQ(severity(report, "arrivals-left"), "formal") << text_of(report);
}

TEST(Barriers, TheSameInitialisationByAllLanesIsFormal) {
  PtxProgram p("mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 1;\n", checked(), kTmemHead);
  const auto same = p.launch(p.buffer("out", 16), 0, 32);
  EXPECT_EQ(severity(same, "mbarrier-reinit"), "formal") << text_of(same);
  PtxProgram q(
      "mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 2;\n"
      "mbarrier.arrive.shared.b64 _, [%r1];\nmbarrier.init.shared.b64 [%r1], 2;\n",
      checked(), kTmemHead);
  const auto used = q.launch(q.buffer("out", 16), 0, 1);
  EXPECT_EQ(severity(used, "mbarrier-reinit"), "error") << text_of(used);
}

TEST(Barriers, AParityThatStandsForALaterPhaseIsFormal) {
  // Warp 1 comes to its first wait when two phases are over: its parity now means the third.
  const std::string body =
      "mov.u32 %r1, bar;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 mbarrier.init.shared.b64 [%r1], 1;\n"
      "bar.sync 0;\nsetp.ge.u32 %p1, %r0, 32;\n"
      "@%p0 mbarrier.arrive.shared.b64 _, [%r1];\n@%p0 mbarrier.arrive.shared.b64 _, [%r1];\n"
      "bar.sync 0;\n@!%p1 bra end;\n"
      "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;\n@!%p2 bra wait;\nend:\n";
  PtxProgram p(body, checked(), kTmemHead);
  const auto report = p.launch(p.buffer("out", 16), 0, 64);
  EXPECT_EQ(report.status, "deadlock");
  EXPECT_EQ(severity(report, "phase-aliased"), "formal") << text_of(report);
}

// --- Remote stores ------------------------------------------------------------------------------

TEST(RemoteStores, OverTheOwnersInitialValueAreErrors) {
  const std::string body =
      "mov.u32 %r1, bar;\nmov.u32 %r2, cell;\nmov.u32 %r4, %cluster_ctarank;\n"
      "mbarrier.init.shared.b64 [%r1], 1;\n"
      "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 4;\n"
      "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
      "st.shared.u32 [cell], 0;\nxor.b32 %r5, %r4, 1;\n"
      "mapa.shared::cluster.u32 %r6, %r2, %r5;\nmapa.shared::cluster.u32 %r7, %r1, %r5;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], 7, [%r7];\n"
      "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;\n@!%p2 bra wait;\n"
      "ld.shared.u32 %r8, [cell];\n"
      "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
  PtxProgram p(body, checked("late"), ".shared .align 8 .b64 bar;\n.shared .u32 cell;\n");
  const auto report = p.launch(p.buffer("out", 16), 0, 1, 2, 2);
  EXPECT_EQ(severity(report, "shared-race"), "error") << text_of(report);
}

// --- Global memory ------------------------------------------------------------------------------

LaunchReport run_ctas(const std::string& body, const char* policy = "eager") {
  PtxProgram p("mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p0, %r1, 0;\n" + body, checked(policy));
  return p.launch(p.buffer("out", std::vector<uint32_t>(64)), 0, 1, 2);
}

TEST(GlobalMemory, TwoCtasMayNotStoreToOnePlace) {
  const auto race = run_ctas("st.global.u32 [%d0], %r1;\n");
  EXPECT_EQ(severity(race, "global-race"), "error") << text_of(race);
  const auto apart =
      run_ctas("mul.wide.u32 %d2, %r1, 4;\nadd.u64 %d2, %d0, %d2;\nst.global.u32 [%d2], %r1;\n");
  EXPECT_EQ(apart.status, "ok") << text_of(apart);
  const auto atomics = run_ctas("red.global.add.u32 [%d0], 1;\n");
  EXPECT_EQ(atomics.status, "ok") << text_of(atomics);
}

// CTA 0 hands a value to CTA 1, which waits for a flag.
std::string handed_over(const char* release, const char* acquire) {
  return std::string("@!%p0 bra other;\nst.global.u32 [%d0], 7;\n") + release +
         "bra end;\nother: " + acquire + "setp.eq.u32 %p1, %r2, 0;\n@%p1 bra other;\n" +
         "AFTER ld.global.u32 %r3, [%d0];\nend:\n";
}
std::string with(std::string text, const std::string& after) {
  return text.replace(text.find("AFTER"), 5, after);
}

TEST(GlobalMemory, FlagsOrderTwoCtas) {
  const auto good = run_ctas(with(handed_over("st.release.gpu.global.u32 [%d0+128], 1;\n",
                                              "ld.acquire.gpu.global.u32 %r2, [%d0+128];\n"),
                                  ""));
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto fences = run_ctas(with(handed_over("membar.gl;\nred.global.add.u32 [%d0+128], 1;\n",
                                                "ld.volatile.global.u32 %r2, [%d0+128];\n"),
                                    "fence.acq_rel.gpu;\n"));
  EXPECT_EQ(fences.status, "ok") << text_of(fences);
  const auto no_release = run_ctas(with(handed_over("st.relaxed.gpu.global.u32 [%d0+128], 1;\n",
                                                    "ld.acquire.gpu.global.u32 %r2, [%d0+128];\n"),
                                        ""));
  EXPECT_EQ(severity(no_release, "global-race"), "error") << text_of(no_release);
  const auto no_acquire = run_ctas(with(handed_over("st.release.gpu.global.u32 [%d0+128], 1;\n",
                                                    "ld.relaxed.gpu.global.u32 %r2, [%d0+128];\n"),
                                        ""));
  EXPECT_EQ(severity(no_acquire, "global-race"), "error") << text_of(no_acquire);
}

// CTA 0 stores plainly, then strongly; CTA 1 comes after neither, or by a flag after both.
TEST(GlobalMemory, AStoreRacesBehindAStrongAccessOfItsOwnWarpToo) {
  const auto strong = [](const std::string& first, const std::string& second) {
    return run_ctas("@%p0 st.global.u32 [%d0], 0;\n@!%p0 bra other;\n" + first +
                    "bra end;\nother: " + second + "end:\n");
  };
  const char *atom = "atom.global.add.u32 %r3, [%d0], 1;\n",
             *red = "red.global.add.f32 [%d0], %f0;\n";
  const char *store = "st.relaxed.gpu.global.u32 [%d0], 2;\n",
             *load = "ld.relaxed.gpu.global.u32 %r3, [%d0];\n";
  for (const auto& [first, second] : {std::pair{atom, atom}, {red, red}, {store, load}}) {
    const auto race = strong(first, second);
    EXPECT_EQ(severity(race, "global-race"), "error") << first << text_of(race);
    const auto ordered =
        strong(std::string("st.release.gpu.global.u32 [%d0+128], 1;\n") + first,
               std::string("ld.acquire.gpu.global.u32 %r2, [%d0+128];\nsetp.eq.u32 %p1, %r2, 0;\n"
                           "@%p1 bra other;\n") +
                   second);
    EXPECT_EQ(severity(ordered, "global-race"), "") << first << text_of(ordered);
  }
}

TEST(GlobalMemory, APlainReadBesideAtomicsIsFormalUnlessTheyAddFloats) {
  const auto swaps = run_ctas(
      "ld.global.u32 %r2, [%d0];\nagain: add.u32 %r3, %r2, 1;\nmov.u32 %r4, %r2;\n"
      "atom.global.cas.b32 %r2, [%d0], %r4, %r3;\nsetp.ne.u32 %p2, %r2, %r4;\n@%p2 bra again;\n");
  EXPECT_EQ(severity(swaps, "global-race"), "formal") << text_of(swaps);
  const auto sums = run_ctas(
      "red.global.add.f32 [%d0], 0f3f800000;\nld.global.u32 %r2, [%d0];\n"
      "setp.eq.u32 %p2, %r2, 0;\n@%p2 bra end;\nend:\n");
  EXPECT_EQ(severity(sums, "global-race"), "error") << text_of(sums);
}

TEST(GlobalMemory, FloatSumsInNoFixedOrderAreReported) {
  const auto floats = run_ctas("red.global.add.f32 [%d0], 0f3f800000;\n");
  EXPECT_EQ(severity(floats, "order_dependent"), "formal") << text_of(floats);
  EXPECT_TRUE(floats.passed());
}

LaunchReport run_staged(const char* fence) {
  const std::string body =
      "mov.u32 %r1, bar;\nmov.u32 %r2, box;\nmbarrier.init.shared.b64 [%r1], 1;\n"
      "st.global.u32 [%d0], 7;\n" +
      std::string(fence) +
      "fence.proxy.async.shared::cta;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;\n"
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d0], 16, [%r1];\n"
      "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;\n@!%p2 bra wait;\n";
  PtxProgram p(body, checked(), ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 box[16];\n");
  return p.launch(p.buffer("out", std::vector<uint32_t>(64)), 0, 1);
}

// What the checker remembers of global memory is limited as that is.
TEST(GlobalMemory, WhatIsRememberedOfItIsLimited) {
  const auto run = [](const char* access, uint64_t bytes) {
    MachineOptions options = checked();
    options.max_memory = 1 << 20;
    PtxProgram p(
        "shl.b32 %r1, %r0, 2;\ncvt.u64.u32 %d2, %r1;\nadd.u64 %d2, %d0, %d2;\n"
        "mov.u64 %d3, 0;\nagain: " +
            std::string(access) +
            "add.u64 %d2, %d2, 4096;\nadd.u64 %d3, %d3, 4096;\n"
            "setp.lt.u64 %p0, %d3, " +
            std::to_string(bytes) + ";\n@%p0 bra again;\n",
        options);
    return p.launch(p.buffer("out", bytes), 0, 1024);
  };
  EXPECT_EQ(run("st.global.u32 [%d2], %r0;\n", 1 << 19).status, "ok");
  const char* release = "red.release.gpu.global.add.u32 [%d2], 1;\n";
  EXPECT_EQ(run(release, 1 << 16).status, "ok");
  EXPECT_THROW(run(release, 1 << 19), MemoryError);
}

TEST(GlobalMemory, AsynchronousReadsOfOrdinaryStoresNeedAProxyFence) {
  for (const char* fence : {"", "fence.proxy.async.shared::cta;\n"}) {
    const auto report = run_staged(fence);
    EXPECT_EQ(severity(report, "missing-proxy-fence"), "error") << text_of(report);
  }
  for (const char* fence : {"fence.proxy.async;\n", "fence.proxy.async.global;\n"}) {
    const auto report = run_staged(fence);
    EXPECT_EQ(report.status, "ok") << text_of(report);
  }
}

// --- wgmma --------------------------------------------------------------------------------------

LaunchReport run_wgmma(const char* fence, const char* between) {
  const std::string product =
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d4, %d5, 1, 1, "
      "1, "
      "0, 0;\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  const std::string body =
      "mov.u32 %r10, a;\nshl.b32 %r13, %r0, 2;\nadd.u32 %r13, %r13, %r10;\nmov.u32 %r12, 0;\n"
      "fill: st.shared.u32 [%r13], 0;\nadd.u32 %r13, %r13, 512;\n"
      "add.u32 %r12, %r12, 1;\nsetp.lt.u32 %p2, %r12, 8;\n@%p2 bra fill;\n"
      "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
      "shr.u32 %r18, %r10, 4;\ncvt.u64.u32 %d4, %r18;\nor.b64 %d4, %d4, 0x0000001000080000;\n"
      "mov.b64 %d5, %d4;\nmov.f32 %f0, 0f00000000;\nmov.f32 %f1, %f0;\nmov.f32 %f2, %f0;\n"
      "mov.f32 %f3, %f0;\n" +
      std::string(fence) + product + between + product + "st.global.f32 [%d0], %f0;\n";
  PtxProgram p(body, checked("eager", "emulated:h200"), ".shared .align 1024 .b8 a[4096];\n",
               "sm_90a");
  return p.launch(p.buffer("out", 16), 0, 128);
}

TEST(Wgmma, RegistersThatOthersTouchNeedAFence) {
  const char* fence = "wgmma.fence.sync.aligned;\n";
  const char* rescale = "mul.f32 %f0, %f0, %f1;\n";
  const auto good = run_wgmma(fence, "mul.f32 %f0, %f0, %f1;\nwgmma.fence.sync.aligned;\n");
  EXPECT_EQ(severity(good, "missing-wgmma-fence"), "") << text_of(good);
  const auto untouched = run_wgmma(fence, "");
  EXPECT_EQ(severity(untouched, "missing-wgmma-fence"), "") << text_of(untouched);
  const auto first = run_wgmma("", "");
  EXPECT_EQ(severity(first, "missing-wgmma-fence"), "error") << text_of(first);
  const auto second = run_wgmma(fence, rescale);
  EXPECT_EQ(severity(second, "missing-wgmma-fence"), "error") << text_of(second);
}

}  // namespace
}  // namespace ptxemu
