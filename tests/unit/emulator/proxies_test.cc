// What one proxy has written another sees only after a fence between the two.
#include "checked_program.h"

namespace ptxemu {
namespace {

constexpr const char* kBox = ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 box[512];\n";

// A thread copies 16 bytes into shared memory as `write` says, and then out by the copy engine.
LaunchReport copy_out(const std::string& write, const char* fence) {
  PtxProgram p("mov.u32 %r1, box;\n" + write + fence +
                   "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\n"
                   "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n",
               checked(), kBox);
  return p.launch(p.buffer("out", 64), p.buffer("in", std::vector<uint32_t>(16)), 1);
}

TEST(Proxies, CpAsyncWritesInTheGenericOne) {
  const std::string write = "cp.async.cg.shared.global [%r1], [%d1], 16;\ncp.async.wait_all;\n";
  const auto good = copy_out(write, "fence.proxy.async.shared::cta;\n");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto bare = copy_out(write, "");
  EXPECT_EQ(severity(bare, "missing-proxy-fence"), "error") << text_of(bare);
  const auto early = copy_out(
      "cp.async.cg.shared.global [%r1], [%d1], 16;\nfence.proxy.async.shared::cta;\n"
      "cp.async.wait_all;\n",
      "");
  EXPECT_EQ(severity(early, "missing-proxy-fence"), "error") << text_of(early);
}

TEST(Proxies, CpAsyncReadsInTheGenericOne) {
  PtxProgram p(
      "mov.u32 %r1, box;\nst.global.u32 [%d0], 7;\n"
      "cp.async.ca.shared.global [%r1], [%d0], 4;\ncp.async.wait_all;\nld.shared.u32 %r2, [%r1];\n"
      "st.global.u32 [%d0+4], %r2;\n",
      checked(), kBox);
  const auto report = p.launch(p.buffer("out", 64), 0, 1);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

LaunchReport store_to_peer(const char* fence, const std::string& order = "acquire",
                           const std::string& scope = "cluster") {
  const std::string body =
      "mov.u32 %r1, box;\nmov.u32 %r2, bar;\nmov.u32 %r3, %cluster_ctarank;\nxor.b32 %r4, %r3, 1;\n"
      "mbarrier.init.shared::cta.b64 [%r2], 1;\n"
      "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n"
      "mapa.shared::cluster.u32 %r5, %r1, %r4;\nmapa.shared::cluster.u32 %r6, %r2, %r4;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r5], {%r3, %r3, %r3, %r3}, "
      "[%r6];\n"
      "wait: mbarrier.try_wait.parity." +
      order + "." + scope + ".shared::cta.b64 %p0, [%r2], 0;\n@!%p0 bra wait;\n" + fence +
      "mul.wide.u32 %d2, %r3, 16;\nadd.u64 %d2, %d0, %d2;\n"
      "cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r1], 16;\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"
      "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
  PtxProgram p(body, checked("late"), kBox);
  return p.launch(p.buffer("out", 64), 0, 1, 2, 2);
}

TEST(Proxies, StAsyncWritesInTheGenericOne) {
  const auto good = store_to_peer("fence.proxy.async.shared::cta;\n");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto bare = store_to_peer("");
  EXPECT_EQ(severity(bare, "missing-proxy-fence"), "error") << text_of(bare);
  // What a fence acquired of shared memory alone passes to the other proxy too.
  const std::string acquire = "fence.acquire.sync_restrict::shared::cluster.cluster;\n";
  const auto restricted =
      store_to_peer((acquire + "fence.proxy.async.shared::cta;\n").c_str(), "relaxed");
  EXPECT_EQ(restricted.status, "ok") << text_of(restricted);
  const auto unfenced = store_to_peer(acquire.c_str(), "relaxed");
  EXPECT_EQ(severity(unfenced, "missing-proxy-fence"), "error") << text_of(unfenced);
}

// What its completion releases, it releases to the cluster ("st.async").
TEST(Proxies, StAsyncIsAwaitedAtTheScopeOfTheCluster) {
  const std::string fence = "fence.proxy.async.shared::cta;\n";
  const auto acquired = store_to_peer(fence.c_str(), "acquire", "cta");
  EXPECT_EQ(severity(acquired, "narrow-scope"), "formal") << text_of(acquired);
  const std::string acquire = "fence.acquire.sync_restrict::shared::cluster.cluster;\n";
  const auto relaxed = store_to_peer((acquire + fence).c_str(), "relaxed", "cta");
  EXPECT_EQ(severity(relaxed, "narrow-scope"), "formal") << text_of(relaxed);
}

// Each CTA adds a box of floats when the one before it has counted.
LaunchReport add_in_turn(const char* fence) {
  const std::string body =
      "mov.u32 %r1, box;\nmov.u32 %r2, %ctaid.x;\nmov.f32 %f1, 0f3f800000;\n"
      "st.shared.v4.f32 [%r1], {%f1, %f1, %f1, %f1};\nfence.proxy.async.shared::cta;\n"
      "wait: ld.acquire.gpu.global.u32 %r3, [%d0+128];\nsetp.lt.u32 %p0, %r3, %r2;\n"
      "@%p0 bra wait;\n" +
      std::string(fence) +
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d0], [%r1], 16;\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"
      "red.release.gpu.global.add.u32 [%d0+128], 1;\n";
  PtxProgram p(body, checked("late"), kBox);
  return p.launch(p.buffer("out", std::vector<uint32_t>(64)), 0, 1, 2);
}

TEST(Proxies, SumsOfTheEngineComeInTurnBehindAFence) {
  const auto good = add_in_turn("fence.proxy.async;\n");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  EXPECT_EQ(severity(good, "order_dependent"), "") << text_of(good);
  const auto global = add_in_turn("fence.proxy.async.global;\n");
  EXPECT_EQ(severity(global, "order_dependent"), "") << text_of(global);
  for (const char* fence : {"", "fence.proxy.async.shared::cta;\n"}) {
    const auto bare = add_in_turn(fence);
    EXPECT_EQ(severity(bare, "order_dependent"), "formal") << fence << text_of(bare);
    EXPECT_NE(text_of(bare).find("fence.proxy.async links"), std::string::npos) << text_of(bare);
  }
}

LaunchReport copy_over_store(const char* fence) {
  PtxProgram p(
      "mov.u32 %r1, box;\nmov.u32 %r2, bar;\nmbarrier.init.shared::cta.b64 [%r2], 1;\n"
      "st.shared.u32 [%r1], 7;\n" +
          std::string(fence) +
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n"
          "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r2];\n"
          "wait: mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r2], 0;\n@!%p0 bra wait;\n",
      checked(), kBox);
  return p.launch(p.buffer("out", 64), p.buffer("in", std::vector<uint32_t>(16)), 1);
}

TEST(Proxies, ACopyOverAnOrdinaryStoreNeedsAFence) {
  const auto good = copy_over_store("fence.proxy.async.shared::cta;\n");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  const auto bare = copy_over_store("");
  EXPECT_EQ(severity(bare, "missing-proxy-fence"), "error") << text_of(bare);
}

// Cluster 0 stores; cluster 1 waits for its flag before what it does.
LaunchReport behind_other_cluster(const std::string& store, const std::string& then) {
  PtxProgram p("mov.u32 %r3, %ctaid.x;\nsetp.eq.u32 %p1, %r3, 0;\n@!%p1 bra flag;\n" + store +
                   "st.release.gpu.global.u32 [%d0+64], 1;\nbra end;\n"
                   "flag: ld.acquire.gpu.global.u32 %r4, [%d0+64];\nsetp.eq.u32 %p2, %r4, 0;\n"
                   "@%p2 bra flag;\n" +
                   then + "end:\n",
               checked(), kBox);
  return p.launch(p.buffer("out", std::vector<uint32_t>(32)), 0, 1, 2);
}

// The copy engine reads what the other cluster stored.
LaunchReport copy_of_other_cluster(const std::string& by_writer, const std::string& by_reader) {
  return behind_other_cluster(
      "st.global.u32 [%d0], 42;\n" + by_writer,
      by_reader +
          "mov.u32 %r1, box;\nmov.u32 %r2, bar;\nmbarrier.init.shared::cta.b64 [%r2], 1;\n"
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n"
          "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d0], 16, [%r2];\n"
          "wait: mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r2], 0;\n@!%p0 bra wait;\n");
}

TEST(Proxies, ACopyOfWhatAnotherClusterHasStoredNeedsAFence) {
  const char* fence = "fence.proxy.async;\n";
  EXPECT_EQ(copy_of_other_cluster(fence, "").status, "ok");
  EXPECT_EQ(copy_of_other_cluster("", "fence.proxy.async.global;\n").status, "ok");
  const auto bare = copy_of_other_cluster("", "");
  EXPECT_EQ(severity(bare, "missing-proxy-fence"), "error") << text_of(bare);
  const auto shared = copy_of_other_cluster("", "fence.proxy.async.shared::cta;\n");
  EXPECT_EQ(severity(shared, "missing-proxy-fence"), "error") << text_of(shared);
}

// The copy engine adds to what the other cluster cleared.
LaunchReport add_to_cleared(const std::string& by_reader) {
  return behind_other_cluster(
      "mov.f32 %f1, 0f00000000;\nst.global.v4.f32 [%d0], {%f1, %f1, %f1, %f1};\n",
      by_reader +
          "mov.u32 %r1, box;\nmov.f32 %f1, 0f3f800000;\n"
          "st.shared.v4.f32 [%r1], {%f1, %f1, %f1, %f1};\nfence.proxy.async.shared::cta;\n"
          "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d0], [%r1], 16;\n"
          "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n");
}

TEST(Proxies, ASumOverWhatAnotherClusterHasStoredNeedsAFence) {
  const auto good = add_to_cleared("fence.proxy.async.global;\n");
  EXPECT_EQ(good.status, "ok") << text_of(good);
  for (const char* fence : {"", "fence.proxy.async.shared::cta;\n"}) {
    const auto bare = add_to_cleared(fence);
    EXPECT_EQ(severity(bare, "missing-proxy-fence"), "error") << fence << text_of(bare);
  }
}

// --- Tensor maps --------------------------------------------------------------------------------

// A map in global memory gets another address, and a box is copied by it: in the same thread, or,
// behind `other`, in another one.
LaunchReport copy_by_edited_map(const char* release, const char* acquire, const char* other = "",
                                const char* join = "") {
  std::string body = "add.u64 %d4, %d0, 1024;\nsetp.ne.u32 %p1, %r0, 0;\n";
  if (*other != 0) body += "@%p1 bra copier;\n";
  for (int i = 0; i < 128; i += 8) {
    body += "ld.param.b64 %d5, [map+" + std::to_string(i) + "];\nst.global.b64 [%d4+" +
            std::to_string(i) + "], %d5;\n";
  }
  body += "tensormap.replace.tile.global_address.global.b1024.b64 [%d4], %d1;\n" +
          std::string(release) + acquire + other +
          "mov.u32 %r1, box;\nmov.u32 %r2, bar;\nmbarrier.init.shared::cta.b64 [%r2], 1;\n"
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;\nmov.u32 %r3, 0;\n"
          "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], "
          "[%d4, {%r3}], [%r2];\n"
          "wait: mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r2], 0;\n@!%p0 bra wait;\n" +
          join;
  PtxProgram p(body, checked("eager", "emulated:h200"), kBox, "sm_90a");
  const uint64_t in = p.buffer("in", std::vector<uint32_t>(64));
  TensorMapRequest request;
  request.dtype = "f32";
  request.address = in;
  request.dims = {64};
  request.box = {16};
  return p.launch(p.buffer("out", std::vector<uint32_t>(512)), in, *other == 0 ? 1 : 33, 1, 1, 0,
                  Machine::encode_tensor_map(request));
}

TEST(Proxies, AnEditedTensorMapIsReleasedAndAcquired) {
  const char* release = "fence.proxy.tensormap::generic.release.gpu;\n";
  const char* acquire = "fence.proxy.tensormap::generic.acquire.gpu [%d4], 128;\n";
  const auto good = copy_by_edited_map(release, acquire);
  EXPECT_EQ(good.status, "ok") << text_of(good);
  for (const auto& [first, second] :
       {std::pair{"", ""},
        {release, ""},
        {"", acquire},
        {release, "fence.proxy.tensormap::generic.acquire.gpu [%d0], 128;\n"}}) {
    const auto report = copy_by_edited_map(first, second);
    EXPECT_EQ(severity(report, "missing-tensormap-fence"), "error") << text_of(report);
  }
}

TEST(Proxies, AnEditedTensorMapMayBeAcquiredByAnotherWarpOfTheCta) {
  const char* release = "fence.proxy.tensormap::generic.release.gpu;\n";
  const std::string acquire = "fence.proxy.tensormap::generic.acquire.gpu [%d4], 128;\n";
  // Thread 0 edits, thread 32 copies.
  const std::string meet = "barrier.sync 0, 64;\n";
  const std::string copier =
      "bra end;\ncopier: setp.ne.u32 %p1, %r0, 32;\n" + meet + "@%p1 bra end;\n";
  const auto by_the_editor =
      copy_by_edited_map(release, acquire.c_str(), (meet + copier).c_str(), "end:\n");
  EXPECT_EQ(by_the_editor.status, "ok") << text_of(by_the_editor);
  const auto by_the_copier =
      copy_by_edited_map(release, "", (meet + copier + acquire).c_str(), "end:\n");
  EXPECT_EQ(by_the_copier.status, "ok") << text_of(by_the_copier);
  for (const auto& other : {meet + copier, meet + acquire + copier}) {
    const auto report = copy_by_edited_map(release, "", other.c_str(), "end:\n");
    EXPECT_EQ(severity(report, "missing-tensormap-fence"), "error") << text_of(report);
  }
}

}  // namespace
}  // namespace ptxemu
