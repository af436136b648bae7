// Barriers in shared memory and asynchronous copies, run as PTX under every policy.
#include <cmath>

#include "ptx_program.h"

namespace ptxemu {
namespace {

std::vector<MachineOptions> all_policies() {
  std::vector<MachineOptions> all;
  for (const char* policy : {"eager", "late", "random", "split"}) {
    for (uint64_t seed : {1, 2, 3}) {
      MachineOptions options;
      options.policy = policy;
      options.seed = seed;
      all.push_back(options);
      if (all.back().policy == "eager" || all.back().policy == "late") break;
    }
  }
  return all;
}

constexpr const char* kBarrier =
    ".shared .align 8 .b64 bar;\n.shared .align 1024 .b8 tile[8192];\n";
// One thread makes the barrier, everybody then sees it.
constexpr const char* kInit =
    "setp.eq.u32 %p0, %r0, 0;\nmov.u32 %r1, bar;\nmov.u32 %r2, tile;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;\nfence.mbarrier_init.release.cluster;\n"
    "bar.sync 0;\n";
constexpr const char* kWait =
    "wait: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n@!%p1 bra wait;\n";
// Each thread writes the words of the tile that it owns.
constexpr const char* kCopyOut =
    "mov.u32 %r10, 0;\nnext: mad.lo.u32 %r11, %r10, 128, %r0;\nshl.b32 %r12, %r11, 2;\n"
    "add.u32 %r13, %r12, %r2;\nld.shared.u32 %r14, [%r13];\nmad.wide.u32 %d2, %r11, 4, %d0;\n"
    "st.global.u32 [%d2], %r14;\nadd.u32 %r10, %r10, 1;\nsetp.lt.u32 %p3, %r10, 16;\n"
    "@%p3 bra next;\n";

std::vector<uint32_t> numbers(size_t count) {
  std::vector<uint32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<uint32_t>(i * 7 + 1);
  return values;
}

// --- mbarrier -----------------------------------------------------------------------------------

TEST(Mbarrier, CountsArrivalsAndBytesAndPhases) {
  PtxProgram p(
      "mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 3;\n"
      "mbarrier.arrive.shared.b64 %d2, [%r1];\n"
      "mbarrier.test_wait.shared.b64 %p1, [%r1], %d2;\nselp.u32 %r5, 1, 0, %p1;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 %d3, [%r1], 64;\n"
      "mbarrier.pending_count.b64 %r6, %d3;\n"
      "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1], 1;\n"
      "mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0;\nselp.u32 %r7, 1, 0, %p2;\n"
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 64;\n"
      "mbarrier.test_wait.shared.b64 %p3, [%r1], %d2;\nselp.u32 %r8, 1, 0, %p3;\n"
      "st.global.v4.u32 [%d0], {%r5, %r6, %r7, %r8};\n"
      "mbarrier.arrive_drop.shared.b64 %d4, [%r1];\n"
      "mbarrier.arrive.noComplete.shared.b64 %d5, [%r1], 1;\n"
      "mbarrier.arrive.shared.b64 %d6, [%r1];\n"
      "mbarrier.test_wait.parity.shared.b64 %p4, [%r1], 1;\nselp.u32 %r5, 1, 0, %p4;\n"
      "mbarrier.arrive.shared.b64 %d7, [%r1];\nmbarrier.pending_count.b64 %r6, %d7;\n"
      "st.global.v2.u32 [%d0+16], {%r5, %r6};\nmbarrier.inval.shared.b64 [%r1];\n",
      {}, kBarrier);
  const uint64_t out = p.buffer("out", 24);
  const auto report = p.launch(out, 0, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  // Not done; 2 of 3 arrivals were missing before the second; bytes are missing; done.
  // The second phase is done, and the third awaits one arrival fewer.
  EXPECT_EQ(p.read<uint32_t>(out, 6), (std::vector<uint32_t>{0, 2, 0, 1, 1, 2}));
}

std::string trap_of(const std::string& body) {
  PtxProgram p(body, {}, kBarrier);
  const auto report = p.launch(p.buffer("out", 16), 0, 1);
  return report.status == "trap" && !report.findings.empty() ? report.findings[0].rule
                                                             : text_of(report);
}

TEST(Mbarrier, WhatCannotGoOnStopsTheKernel) {
  EXPECT_EQ(trap_of("mov.u32 %r1, bar;\nmbarrier.arrive.shared.b64 _, [%r1];\n"),
            "mbarrier-uninitialised");
  EXPECT_EQ(trap_of("mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 1;\n"
                    "mbarrier.arrive.shared.b64 _, [%r1], 2;\n"),
            "mbarrier-underflow");
  EXPECT_EQ(trap_of("mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 0;\n"), "mbarrier-count");
  EXPECT_EQ(trap_of("mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 1;\n"
                    "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 1048575;\n"
                    "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 1;\n"),
            "mbarrier-bytes");
}

TEST(Mbarrier, AWaitThatNothingEndsIsADeadlock) {
  PtxProgram p(std::string(kInit) + kWait, {}, kBarrier);
  const auto report = p.launch(p.buffer("out", 16));
  EXPECT_EQ(report.status, "deadlock");
  ASSERT_FALSE(report.deadlock.empty());
  EXPECT_NE(report.deadlock[0].waits_on.find("mbarrier"), std::string::npos)
      << report.deadlock[0].waits_on;
}

TEST(Mbarrier, ReinitialisingALiveBarrierIsFoundWhenChecking) {
  MachineOptions options;
  options.check = true;
  PtxProgram p(
      "mov.u32 %r1, bar;\nmbarrier.init.shared.b64 [%r1], 1;\n"
      "mbarrier.init.shared.b64 [%r1], 1;\n",
      options, kBarrier);
  const auto report = p.launch(p.buffer("out", 16), 0, 1);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, "mbarrier-reinit") << text_of(report);
}

TEST(Mbarrier, ArrivalsAtAnotherCtaWakeIt) {
  for (const auto& options : all_policies()) {
    PtxProgram p(std::string(kInit) +
                     "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
                     "mov.u32 %r3, %cluster_ctarank;\nxor.b32 %r4, %r3, 1;\n"
                     "mapa.shared::cluster.u32 %r5, %r1, %r4;\n"
                     "@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n" +
                     kWait +
                     "mad.wide.u32 %d2, %r3, 4, %d0;\nst.global.u32 [%d2], 5;\n"
                     "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
                 options, kBarrier);
    const uint64_t out = p.buffer("out", std::vector<uint32_t>(2, 0));
    const auto report = p.launch(out, 0, 64, 2, 2);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    EXPECT_EQ(p.read<uint32_t>(out, 2), (std::vector<uint32_t>{5, 5}));
  }
}

// A warp that blocks in phase 0 passes although the barrier is two phases further when its turn
// comes: warp 0 completes both without a pause.
TEST(Mbarrier, AWaiterPassesWhenItsPhaseCompletesHoweverLateItsTurn) {
  for (const auto& options : all_policies()) {
    PtxProgram p(
        "mov.u32 %r1, bar;\nmov.u32 %r2, tile;\nsetp.eq.u32 %p0, %r0, 0;\n"
        "@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;\n@%p0 mbarrier.init.shared::cta.b64 "
        "[%r1+8], 64;\nbar.sync 0;\nsetp.lt.u32 %p2, %r0, 32;\n@%p2 bra first;\n"
        "mbarrier.arrive.shared.b64 _, [%r1+8];\n"
        "wait: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n@!%p1 bra wait;\n"
        "bra.uni done;\n"
        "first: mbarrier.arrive.shared.b64 _, [%r1+8];\n"
        "poll: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1+8], 0;\n"
        "@!%p1 bra poll;\nmov.u32 %r5, 0;\n"
        "idle: add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p3, %r5, 3000;\n@%p3 bra idle;\n"
        "@!%p0 bra done;\nmbarrier.arrive.shared.b64 _, [%r1];\n"
        "mbarrier.arrive.shared.b64 _, [%r1];\ndone:\n",
        options, ".shared .align 8 .b64 bar[2];\n.shared .align 16 .b8 tile[16];\n");
    const auto report = p.launch(p.buffer("out", 16), 0, 64);
    EXPECT_EQ(report.status, "ok") << options.policy << text_of(report);
  }
}

// --- Copies into shared memory ------------------------------------------------------------------

TEST(BulkCopy, GlobalToSharedArrivesWithItsBytes) {
  for (const auto& options : all_policies()) {
    PtxProgram p(std::string(kInit) +
                     "@!%p0 bra wait;\n"
                     "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 8192;\n"
                     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], "
                     "[%d1], 8192, [%r1];\n" +
                     kWait + kCopyOut,
                 options, kBarrier);
    const auto data = numbers(2048);
    const uint64_t in = p.buffer("in", data), out = p.buffer("out", 8192);
    const auto report = p.launch(out, in, 128);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    EXPECT_EQ(p.read<uint32_t>(out, 2048), data) << options.policy;
    EXPECT_EQ(report.tma_bytes, 8192u);
  }
}

TEST(BulkCopy, TheDestinationIsPoisonedUntilItArrives) {
  MachineOptions options;
  options.policy = "late";
  PtxProgram p(std::string(kInit) +
                   "mov.u32 %r3, 0;\nst.shared.u32 [%r2], %r3;\nbar.sync 0;\n@!%p0 bra wait;\n"
                   "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\n"
                   "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1], "
                   "16, [%r1];\n"
                   "ld.shared.f32 %f1, [%r2];\nst.global.f32 [%d0], %f1;\n" +
                   kWait + "ld.shared.f32 %f1, [%r2];\nst.global.f32 [%d0+4], %f1;\n",
               options, kBarrier);
  const uint64_t in = p.buffer("in", std::vector<float>{1, 2, 3, 4}), out = p.buffer("out", 8);
  const auto report = p.launch(out, in);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_TRUE(std::isnan(p.read<float>(out, 2)[0]));
  EXPECT_EQ(p.read<float>(out, 2)[1], 1.0f);
}

TEST(AsyncCopy, GroupsZerosAndTheBarrierFollowTheThread) {
  for (const auto& options : all_policies()) {
    PtxProgram p(
        "shl.b32 %r3, %r0, 4;\nmov.u32 %r2, tile;\nadd.u32 %r2, %r2, %r3;\n"
        "mad.wide.u32 %d2, %r0, 16, %d1;\nmad.wide.u32 %d3, %r0, 32, %d0;\n"
        "cp.async.cg.shared.global [%r2], [%d2], 16;\ncp.async.commit_group;\n"
        "cp.async.ca.shared.global.L2::128B [%r2+4096], [%d2], 8, 4;\ncp.async.commit_group;\n"
        "cp.async.wait_group 1;\nld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2];\n"
        "st.global.v4.u32 [%d3], {%r4, %r5, %r6, %r7};\n"
        "cp.async.wait_all;\nld.shared.v2.u32 {%r4, %r5}, [%r2+4096];\n"
        "st.global.v2.u32 [%d3+16], {%r4, %r5};\n",
        options, kBarrier);
    const auto data = numbers(128);
    const uint64_t in = p.buffer("in", data), out = p.buffer("out", 1024);
    const auto report = p.launch(out, in);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    const auto got = p.read<uint32_t>(out, 256);
    for (size_t lane = 0; lane < 32; ++lane) {
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got[8 * lane + i], data[4 * lane + i]);
      EXPECT_EQ(got[8 * lane + 4], data[4 * lane]);
      EXPECT_EQ(got[8 * lane + 5], 0u);
    }
  }
}

TEST(AsyncCopy, ABarrierCanAwaitTheCopiesOfManyThreads) {
  for (const char* form : {"", ".noinc"}) {
    for (const auto& options : all_policies()) {
      const bool noinc = *form != 0;
      PtxProgram p(
          std::string("mov.u32 %r1, bar;\nmov.u32 %r2, tile;\nsetp.eq.u32 %p0, %r0, 0;\n") +
              "@%p0 mbarrier.init.shared.b64 [%r1], 64;\nbar.sync 0;\n"
              "shl.b32 %r3, %r0, 4;\nadd.u32 %r3, %r2, %r3;\n"
              "mad.wide.u32 %d2, %r0, 16, %d1;\n"
              "cp.async.ca.shared.global [%r3], [%d2], 16;\n"
              "cp.async.mbarrier.arrive" +
              form + ".shared::cta.b64 [%r1];\n" +
              (noinc ? "" : "mbarrier.arrive.shared.b64 _, [%r1];\n") + kWait +
              "xor.b32 %r4, %r0, 63;\nshl.b32 %r3, %r4, 4;\nadd.u32 %r3, %r2, %r3;\n"
              "ld.shared.u32 %r5, [%r3];\nmad.wide.u32 %d2, %r4, 4, %d0;\n"
              "st.global.u32 [%d2], %r5;\n",
          options, kBarrier);
      const auto data = numbers(256);
      const uint64_t in = p.buffer("in", data), out = p.buffer("out", 256);
      const auto report = p.launch(out, in, 64);
      ASSERT_EQ(report.status, "ok") << options.policy << form << text_of(report);
      const auto got = p.read<uint32_t>(out, 64);
      for (size_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], data[4 * i]);
    }
  }
}

TEST(RemoteStore, WritesAnotherCtaAndSignalsThere) {
  for (const auto& options : all_policies()) {
    PtxProgram p(
        std::string(kInit) +
            "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 544;\n"
            "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
            "mov.u32 %r3, %cluster_ctarank;\nxor.b32 %r4, %r3, 1;\n"
            "mapa.shared::cluster.u32 %r5, %r1, %r4;\nmapa.shared::cluster.u32 %r6, %r2, %r4;\n"
            "mad.lo.u32 %r7, %r0, 16, %r6;\nmad.lo.u32 %r8, %r3, 1000, %r0;\n"
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r7], "
            "{%r8, %r8, %r8, %r8}, [%r5];\n"
            "@!%p0 bra wait;\n"
            "mov.u32 %r9, 5;\nst.shared.u32 [%r2+1024], %r9;\n"
            "fence.proxy.async;\nadd.u32 %r15, %r2, 1024;\nadd.u32 %r16, %r6, 2048;\n"
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r16], "
            "[%r15], 32, [%r5];\n" +
            kWait +
            "mad.lo.u32 %r7, %r0, 16, %r2;\nld.shared.u32 %r8, [%r7];\nld.shared.u32 %r9, "
            "[%r2+2048];\n"
            "mad.lo.u32 %r10, %r3, 32, %r0;\nmad.wide.u32 %d2, %r10, 8, %d0;\n"
            "st.global.v2.u32 [%d2], {%r8, %r9};\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n",
        options, kBarrier);
    const uint64_t out = p.buffer("out", 512);
    const auto report = p.launch(out, 0, 32, 2, 2);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    const auto got = p.read<uint32_t>(out, 128);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (uint32_t lane = 0; lane < 32; ++lane) {
        EXPECT_EQ(got[64 * rank + 2 * lane], (1 - rank) * 1000 + lane) << options.policy;
        EXPECT_EQ(got[64 * rank + 2 * lane + 1], 5u);
      }
    }
  }
}

// Registers of 8 bits lie as far apart as those of 16.
TEST(RemoteStore, StoresTheByteOfEachLane) {
  for (const auto& options : all_policies()) {
    PtxProgram p(
        ".reg .b8 %b;\ncvt.u8.u32 %b, %r0;\ncvt.u64.u32 %d2, %r0;\nadd.s64 %d2, %d2, %d0;\n"
        "st.async.release.gpu.global.u8 [%d2], %b;\n",
        options);
    const uint64_t out = p.buffer("out", std::vector<uint8_t>(32, 255));
    const auto report = p.launch(out);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    const auto got = p.read<uint8_t>(out, 32);
    for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(got[lane], lane) << options.policy;
  }
}

// Memory that a copy reads and writes. The manual says nothing of it; made at once, the copy is of
// what was there. In halves it is not, nor where the target holds a pattern until the copy is done.
TEST(RemoteStore, ABulkCopyMayOverlapItsSource) {
  for (const auto& options : all_policies()) {
    PtxProgram p(
        std::string(kInit) +
            "mad.lo.u32 %r7, %r0, 4, %r2;\nst.shared.u32 [%r7], %r0;\nfence.proxy.async;\n"
            "bar.sync 0;\n@!%p0 bra wait;\n"
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\nadd.u32 %r15, %r2, 128;\n"
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r15], "
            "[%r2], 256, [%r1];\n" +
            kWait +
            "ld.shared.u32 %r8, [%r7];\nmad.wide.u32 %d2, %r0, 4, %d0;\n"
            "st.global.u32 [%d2], %r8;\n",
        options, kBarrier);
    const uint64_t out = p.buffer("out", 512);
    const auto report = p.launch(out, 0, 128);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    if (options.policy != "eager") continue;
    const auto got = p.read<uint32_t>(out, 128);
    for (uint32_t i = 0; i < 128; ++i) {
      EXPECT_EQ(got[i], i >= 32 && i < 96 ? i - 32 : i) << options.policy;
    }
  }
}

// --- Tensors ------------------------------------------------------------------------------------

TensorMapRequest request_of(uint64_t address, const std::string& swizzle) {
  TensorMapRequest request;
  request.address = address;
  request.dtype = "f32";
  request.dims = {64, 40};
  request.strides_bytes = {256};
  request.box = {32, 64};
  request.swizzle = swizzle;
  return request;
}

// A box at (32, 8) of a 64 x 40 tensor: 32 rows of it exist.
TEST(TensorCopy, LoadsABoxAndStoresItElsewhere) {
  for (const char* swizzle : {"none", "128B"}) {
    for (const auto& options : all_policies()) {
      PtxProgram p(std::string(kInit) +
                       "@!%p0 bra wait;\nmov.u64 %d5, map;\ncvta.param.u64 %d6, %d5;\n"
                       "prefetch.tensormap [%d6];\n"
                       "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 8192;\n"
                       "mov.u32 %r3, 32;\nmov.u32 %r4, 8;\n"
                       "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                       ".mbarrier::complete_tx::bytes [%r2], [%d6, {%r3, %r4}], [%r1];\n" +
                       kWait +
                       "@!%p0 bra done;\nmov.u32 %r3, 0;\n"
                       "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d6, {%r3, %r3}], "
                       "[%r2];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n"
                       "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group "
                       "[%d6, {%r3, %r3}], [%r2];\ncp.async.bulk.commit_group;\n"
                       "cp.async.bulk.wait_group 0;\ndone:\n",
                   options, kBarrier);
      std::vector<float> data(64 * 40);
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
      const uint64_t tensor = p.buffer("tensor", data);
      const auto map = Machine::encode_tensor_map(request_of(tensor, swizzle));
      const auto report = p.launch(0, 0, 128, 1, 1, 0, map);
      ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
      const auto got = p.read<float>(tensor, data.size());
      for (size_t row = 0; row < 40; ++row) {
        for (size_t column = 0; column < 64; ++column) {
          const float loaded = row < 32 ? data[64 * (row + 8) + 32 + column % 32] : 0;
          // The store and the sum may come in either order: a store, then a sum, or the reverse.
          const float value = got[64 * row + column];
          if (column >= 32) {
            EXPECT_EQ(value, data[64 * row + column]);
          } else {
            EXPECT_TRUE(value == 2 * loaded || value == loaded)
                << options.policy << " " << value << " of " << loaded;
          }
        }
      }
    }
  }
}

TEST(TensorCopy, MulticastReachesEveryCtaOfTheMask) {
  for (const auto& options : all_policies()) {
    PtxProgram p(std::string(kInit) +
                     "mov.u32 %r20, %cluster_ctarank;\n"
                     "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 8192;\n"
                     "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
                     "setp.eq.u32 %p4, %r20, 1;\nand.pred %p5, %p4, %p0;\n@!%p5 bra wait;\n"
                     "mov.u64 %d5, map;\ncvta.param.u64 %d6, %d5;\nmov.u16 %h1, 3;\n"
                     "mov.u32 %r3, 0;\n"
                     "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%r2], [%d6, {%r3, %r3}], [%r1], %h1;\n" +
                     kWait + "mad.wide.u32 %d0, %r20, 8192, %d0;\n" + kCopyOut +
                     "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
                 options, kBarrier);
    std::vector<float> data(64 * 40);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
    const uint64_t tensor = p.buffer("tensor", data), out = p.buffer("out", 2 * 8192);
    const auto map = Machine::encode_tensor_map(request_of(tensor, "none"));
    const auto report = p.launch(out, 0, 128, 2, 2, 0, map);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    const auto got = p.read<float>(out, 2 * 2048);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t row = i % 2048 / 32, column = i % 32;
      ASSERT_EQ(got[i], row < 40 ? data[64 * row + column] : 0) << options.policy << " " << i;
    }
  }
}

// "cp.async.bulk.tensor": with .cta_group::2 the signal goes to the CTA of the pair that has the
// parity of the barrier's CTA.
TEST(TensorCopy, PairsSignalTheCtaOfTheNamedParity) {
  for (const auto& options : all_policies()) {
    PtxProgram p(std::string(kInit) +
                     "mov.u32 %r20, %cluster_ctarank;\nsetp.eq.u32 %p4, %r20, 0;\n"
                     "and.pred %p5, %p4, %p0;\n"
                     "@%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16384;\n"
                     "barrier.cluster.arrive;\nbarrier.cluster.wait;\n@!%p0 bra skip;\n"
                     "mov.u64 %d5, map;\ncvta.param.u64 %d6, %d5;\nmov.u32 %r3, 0;\n"
                     "and.b32 %r5, %r1, 0xFEFFFFFF;\n"
                     "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global"
                     ".mbarrier::complete_tx::bytes [%r2], [%d6, {%r3, %r3}], [%r5];\n"
                     "skip: @!%p4 bra join;\n" +
                     kWait +
                     "join: barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
                     "mad.wide.u32 %d0, %r20, 8192, %d0;\n" +
                     kCopyOut,
                 options, kBarrier);
    std::vector<float> data(64 * 40, 3.0f);
    const uint64_t tensor = p.buffer("tensor", data), out = p.buffer("out", 2 * 8192);
    const auto map = Machine::encode_tensor_map(request_of(tensor, "none"));
    const auto report = p.launch(out, 0, 128, 2, 2, 0, map);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    const auto got = p.read<float>(out, 2 * 2048);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], i % 2048 / 32 < 40 ? 3.0f : 0) << options.policy << " " << i;
    }
  }
}

// An H200 ends a copy from another place as an illegal instruction (measured).
TEST(TensorCopy, ABoxBeginsAtAMultipleOfSixteenBytes) {
  for (const int first : {-4, -2, 4, 7}) {
    PtxProgram p(std::string(kInit) +
                     "@!%p0 bra wait;\nmov.u64 %d5, map;\ncvta.param.u64 %d6, %d5;\n" +
                     "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 8192;\nmov.s32 %r3, " +
                     std::to_string(first) +
                     ";\nmov.u32 %r4, 1;\n"
                     "cp.async.bulk.tensor.2d.shared::cluster.global"
                     ".mbarrier::complete_tx::bytes [%r2], [%d6, {%r3, %r4}], [%r1];\n" +
                     kWait,
                 all_policies()[0], kBarrier);
    const uint64_t tensor = p.buffer("tensor", 64 * 40 * 4);
    const auto map = Machine::encode_tensor_map(request_of(tensor, "none"));
    const auto report = p.launch(0, 0, 128, 1, 1, 0, map);
    if (first % 4 == 0) {
      EXPECT_EQ(report.status, "ok") << text_of(report);
    } else {
      ASSERT_EQ(report.status, "trap") << first;
      EXPECT_EQ(report.findings[0].rule, "misaligned");
    }
  }
}

TEST(TensorCopy, ModesThatAreNotTakenAreNamed) {
  struct Case {
    const char *statement, *words;
  };
  for (const Case& c : {Case{"cp.async.bulk.tensor.3d.shared::cta.global.im2col"
                             ".mbarrier::complete_tx::bytes [%r1], [%d1, {%r1, %r1, %r1}], [%r2], "
                             "{%h1}",
                             "the mode .im2col is not modelled"},
                        Case{"cp.async.bulk.tensor.3d.shared::cta.global.tile::gather4"
                             ".mbarrier::complete_tx::bytes [%r1], [%d1, {%r1, %r1, %r1, %r1, "
                             "%r1}], [%r2]",
                             "four rows of another rank; accepted: .2d"},
                        Case{"cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4"
                             ".mbarrier::complete_tx::bytes [%r1], [%d1, {%r1, %r1}], [%r2]",
                             "2 coordinates of a copy of four rows: a column and four"},
                        Case{"cp.async.bulk.tensor.2d.global.shared::cta.tile::gather4.bulk_group "
                             "[%d1, {%r1, %r1, %r1, %r1, %r1}], [%r1]",
                             "tile::gather4"}}) {
    try {
      PtxProgram p(std::string(c.statement) + ";\n");
      p.launch(p.buffer("out", 16));
      ADD_FAILURE() << c.statement << ": accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(c.words), std::string::npos) << error.what();
    }
  }
}

TEST(TensorMapEdit, ReplacedFieldsAreUsedByTheNextCopy) {
  PtxProgram p(std::string(kInit) +
                   "@!%p0 bra wait;\n"
                   // The map is built in shared memory and published in `out`.
                   "mov.u32 %r30, tile;\nadd.u32 %r30, %r30, 4096;\nmov.u64 %d5, map;\n"
                   "ld.param.u64 %d7, [%d5];\nst.shared.u64 [%r30], %d7;\n"

                   "ld.param.u64 %d7, [map+8];\n"
                   "st.shared.u64 [%r30+8], %d7;\n"
                   "ld.param.v4.u32 {%r32, %r33, %r34, %r35}, [map+16];\n"
                   "st.shared.v4.b32 [%r30+16], {%r32, %r33, %r34, %r35};\n"
                   "ld.param.v4.u32 {%r32, %r33, %r34, %r35}, [map+32];\n"
                   "st.shared.v4.b32 [%r30+32], {%r32, %r33, %r34, %r35};\n"
                   "ld.param.v4.u32 {%r32, %r33, %r34, %r35}, [map+48];\n"
                   "st.shared.v4.b32 [%r30+48], {%r32, %r33, %r34, %r35};\n"
                   "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r30], %d1;\n"
                   "mov.u32 %r36, 16;\n"
                   "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r30], 1, %r36;\n"
                   "wait:\nbar.warp.sync -1;\n"
                   "mov.u32 %r30, tile;\nadd.u32 %r30, %r30, 4096;\n"
                   "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync"
                   ".aligned [%d0], [%r30], 128;\n"
                   "fence.proxy.tensormap::generic.acquire.gpu [%d0], 128;\n"
                   "@!%p0 bra done;\n"
                   "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 4096;\nmov.u32 %r3, 0;\n"
                   "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r2], "
                   "[%d0, {%r3, %r3}], [%r1];\n"
                   "poll: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n"
                   "@!%p1 bra poll;\n"
                   "ld.shared.u32 %r4, [%r2+1920];\nld.shared.u32 %r5, [%r2+2048];\n"
                   "st.global.v2.u32 [%d0+128], {%r4, %r5};\ndone:\n",
               {}, kBarrier);
  std::vector<float> data(64 * 40, 1.0f), other(64 * 40, 2.0f);
  const uint64_t tensor = p.buffer("tensor", data), in = p.buffer("other", other);
  const uint64_t out = p.buffer("out", 256);
  auto request = request_of(tensor, "none");
  request.box = {32, 32};
  const auto report = p.launch(out, in, 32, 1, 1, 0, Machine::encode_tensor_map(request));
  ASSERT_EQ(report.status, "ok") << text_of(report);
  // Row 15 is the last that exists now.
  EXPECT_EQ(p.read<float>(out + 128, 2), (std::vector<float>{2.0f, 0.0f}));
}

TEST(TensorMapEdit, AtomsOfSixteenBytesAreThePlainSwizzle) {
  PtxProgram p("tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%d0], 0;\n");
  const auto of = [](const std::string& swizzle) {
    const auto map = Machine::encode_tensor_map(request_of(4096, swizzle));
    return std::vector<std::byte>(map.begin(), map.end());
  };
  const uint64_t out = p.buffer("out", of("128B_ATOM_32B"));
  const auto report = p.launch(out, 0, 1);
  ASSERT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<std::byte>(out, 128), of("128B"));
}

// --- Copies to global memory
// ----------------------------------------------------------------------

TEST(BulkCopy, SharedToGlobalIsDoneAfterWaitGroup) {
  for (const auto& options : all_policies()) {
    PtxProgram p(
        "mov.u32 %r2, tile;\nmad.lo.u32 %r3, %r0, 16, %r2;\ncvt.rn.f32.u32 %f1, %r0;\n"
        "st.shared.v4.f32 [%r3], {%f1, %f1, %f1, %f1};\nfence.proxy.async.shared::cta;\n"
        "bar.sync 0;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra done;\n"
        "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r2], 512;\n"
        "cp.async.bulk.commit_group;\n"
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d1], [%r2], 512;\n"
        "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n"
        "mov.u32 %r4, 0;\nst.shared.u32 [%r2], %r4;\ncp.async.bulk.wait_group 1;\n"
        "ld.global.f32 %f2, [%d0+16];\nst.global.f32 [%d0], %f2;\n"
        "cp.async.bulk.wait_group 0;\nld.global.f32 %f2, [%d1+16];\nst.global.f32 [%d1], %f2;\n"
        "done:\n",
        options, kBarrier);
    const uint64_t out = p.buffer("out", 512), in = p.buffer("in", std::vector<float>(128, 10.0f));
    const auto report = p.launch(out, in);
    ASSERT_EQ(report.status, "ok") << options.policy << text_of(report);
    const auto copied = p.read<float>(out, 128), summed = p.read<float>(in, 128);
    for (size_t i = 1; i < 128; ++i) {
      EXPECT_EQ(copied[i], static_cast<float>(i / 4)) << options.policy;
      EXPECT_EQ(summed[i], 10.0f + static_cast<float>(i / 4)) << options.policy;
    }
    EXPECT_EQ(copied[0], 1.0f) << options.policy;
    EXPECT_EQ(summed[0], 11.0f) << options.policy;
  }
}

}  // namespace
}  // namespace ptxemu
