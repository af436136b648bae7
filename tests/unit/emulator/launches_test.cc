// In which order clusters, launches and products may run, and what the checker says of a program
// that rests on another.
#include <algorithm>
#include <numeric>

#include "checked_program.h"

namespace ptxemu {
namespace {

// --- Programmatic launches -----------------------------------------------------------------------

constexpr const char* kLoad = "ld.global.u32 %r2, [%d0];\n";
constexpr const char* kStore = "st.global.u32 [%d0], %r1;\n";
constexpr const char* kWait = "griddepcontrol.wait;\n";
constexpr const char* kElsewhere = "st.global.u32 [%d0+2048], %r1;\n";

// Launches of kernels k0, k1 ... over one buffer, each of two warps; %d0 is a thread's own place.
class Launches {
 public:
  explicit Launches(const std::vector<std::string>& bodies, MachineOptions options = checked())
      : machine_(options) {
    std::string text = ".version 8.8\n.target sm_100a\n.address_size 64\n";
    for (size_t i = 0; i < bodies.size(); ++i) {
      text +=
          ".visible .entry k" + std::to_string(i) +
          "(.param .u64 out)\n{\n.shared .align 128 .b8 tile[256];\n.shared .align 8 .b64 bar;\n"
          ".reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %d<8>;\n"
          "ld.param.u64 %d1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d0, %r1, 4;\n"
          "add.u64 %d0, %d0, %d1;\n" +
          bodies[i] + "ret;\n}\n";
    }
    module_ = machine_.load(text, "test.ptx");
    out_ = machine_.allocate(4096, "out");
    machine_.fill(out_, 0, 4096);
  }

  LaunchReport run(int kernel, bool programmatic) {
    LaunchRequest request;
    request.kernel = "k" + std::to_string(kernel);
    request.block = {64, 1, 1};
    request.programmatic = programmatic;
    std::vector<std::byte> argument(sizeof out_);
    std::memcpy(argument.data(), &out_, sizeof out_);
    return machine_.launch(module_, request, {argument});
  }
  // What the last of them is told, when all but the first are programmatic.
  std::string last() {
    LaunchReport report;
    const size_t kernels = machine_.kernels(module_).size();
    for (size_t i = 0; i < kernels; ++i) report = run(static_cast<int>(i), i != 0);
    return severity(report, "global-race");
  }
  Machine& machine() { return machine_; }

 private:
  Machine machine_;
  ModuleHandle module_;
  uint64_t out_ = 0;
};

TEST(ProgrammaticLaunch, TouchesWhatTheEarlierLaunchTouchesOnlyAfterItsWait) {
  EXPECT_EQ(Launches({kStore, kLoad}).last(), "error");
  EXPECT_EQ(Launches({kStore, std::string(kWait) + kLoad}).last(), "");
  EXPECT_EQ(Launches({kStore, std::string(kLoad) + kWait}).last(), "error");
  EXPECT_EQ(Launches({kLoad, kStore}).last(), "error");
  EXPECT_EQ(Launches({kLoad, std::string(kWait) + kStore}).last(), "");
  EXPECT_EQ(Launches({kStore, kElsewhere}).last(), "");
  EXPECT_EQ(Launches({kLoad, kLoad}).last(), "");
}

TEST(ProgrammaticLaunch, IsNotOrderedByTheSignalOfTheEarlierLaunch) {
  const std::string signal = std::string(kStore) + "griddepcontrol.launch_dependents;\n";
  EXPECT_EQ(Launches({signal, kLoad}).last(), "error");
  EXPECT_EQ(Launches({signal, std::string(kWait) + kLoad}).last(), "");
}

TEST(ProgrammaticLaunch, WaitsForAllWhoComeAfterTheThreadThatWaits) {
  const std::string first_warp = "setp.lt.u32 %p0, %r1, 32;\n@!%p0 bra on;\n" + std::string(kWait);
  EXPECT_EQ(Launches({kStore, first_warp + "on: bar.sync 0;\n" + kLoad}).last(), "");
  EXPECT_EQ(Launches({kStore, first_warp + "on:\n" + kLoad + "bar.sync 0;\n"}).last(), "error");
}

TEST(ProgrammaticLaunch, CountsStatementsAndOperations) {
  const auto count = [](const std::string& second) {
    Launches launches({kStore, second});
    launches.run(0, false);
    const LaunchReport report = launches.run(1, true);
    EXPECT_EQ(report.findings.size(), 1u) << text_of(report);
    return report.findings.empty() ? 0 : report.findings[0].count;
  };
  EXPECT_EQ(count(kLoad), 2u) << "a warp each";
  EXPECT_EQ(count("again: " + std::string(kLoad) +
                  "add.u32 %r1, %r1, 64;\nsetp.lt.u32 %p0, %r1, 192;\n@%p0 bra again;\n"),
            6u);
  EXPECT_EQ(count("mov.u32 %r3, tile;\nmad.lo.u32 %r3, %r1, 4, %r3;\n"
                  "cp.async.ca.shared.global [%r3], [%d0], 4;\ncp.async.wait_all;\n"),
            2u);
}

TEST(ProgrammaticLaunch, OrdersACopyByWhenItIsIssued) {
  const std::string copy =
      "mov.u32 %r3, tile;\nmov.u32 %r4, bar;\nsetp.ne.u32 %p0, %r1, 0;\n@%p0 bra end;\n"
      "mbarrier.init.shared.b64 [%r4], 1;\nfence.proxy.async.shared::cta;\n$0"
      "mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 16;\n"
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%d1], 16, [%r4];\n$1"
      "wait: mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0;\n@!%p1 bra wait;\nend:\n";
  const auto with = [&](const char* before, const char* after) {
    std::string text = copy;
    text.replace(text.find("$0"), 2, before);
    text.replace(text.find("$1"), 2, after);
    return text;
  };
  EXPECT_EQ(Launches({kStore, with(kWait, "")}).last(), "");
  EXPECT_EQ(Launches({kStore, with("", kWait)}).last(), "error");
}

TEST(ProgrammaticLaunch, WaitsOnlyForGridsThatTheOneBeforeItHasWaitedFor) {
  const std::string waits = kWait;
  EXPECT_EQ(Launches({kStore, waits + kElsewhere, waits + kLoad}).last(), "");
  EXPECT_EQ(Launches({kStore, kElsewhere, waits + kLoad}).last(), "error");
  // The third launch starts when the second has signalled: before or after its wait.
  const std::string signal = "griddepcontrol.launch_dependents;\n";
  EXPECT_EQ(Launches({kStore, waits + signal, kLoad}).last(), "");
  EXPECT_EQ(Launches({kStore, signal + waits, kLoad}).last(), "error");
}

TEST(ProgrammaticLaunch, RunsBesideNothingThatTheHostHasWaitedFor) {
  Launches plain({kStore, kLoad});
  plain.run(0, false);
  EXPECT_EQ(severity(plain.run(1, false), "global-race"), "");
  Launches waited({kStore, kLoad});
  waited.run(0, false);
  waited.machine().synchronize();
  EXPECT_EQ(severity(waited.run(1, true), "global-race"), "");
}

// --- The order in which clusters start -----------------------------------------------------------

std::vector<uint32_t> order_of(uint32_t clusters, const std::string& order, uint64_t seed) {
  MachineOptions options;
  options.launch_order = order;
  options.seed = seed;
  PtxProgram p(
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\natom.global.add.u32 %r1, [%d1], 1;\n"
      "mov.u32 %r2, %ctaid.x;\nmul.wide.u32 %d2, %r1, 4;\nadd.u64 %d2, %d2, %d0;\n"
      "st.global.u32 [%d2], %r2;\n",
      options);
  const uint64_t out = p.buffer("out", std::vector<uint32_t>(clusters));
  EXPECT_EQ(p.launch(out, p.buffer("in", std::vector<uint32_t>{0}), 32, clusters).status, "ok");
  return p.read<uint32_t>(out, clusters);
}

TEST(LaunchOrder, IsThatOfTheGridOrOneDrawnFromTheSeed) {
  for (const uint32_t clusters : {1u, 2u, 5u, 300u}) {
    std::vector<uint32_t> all(clusters);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order_of(clusters, "in_order", 1), all);
    auto drawn = order_of(clusters, "random", 1);
    if (clusters > 5) {
      EXPECT_NE(drawn, all);
      EXPECT_NE(drawn, order_of(clusters, "random", 2));
    }
    EXPECT_EQ(drawn, order_of(clusters, "random", 1));
    std::sort(drawn.begin(), drawn.end());
    EXPECT_EQ(drawn, all);
  }
}

// --- Who is there at one time --------------------------------------------------------------------

TEST(Residency, IsOfAsManySmallCtasAsShareTheMultiprocessors) {
  // Every CTA waits until all have come.
  PtxProgram p(
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\nmov.u32 %r2, %nctaid.x;\n"
      "atom.release.gpu.global.add.u32 %r3, [%d0], 1;\n"
      "wait: ld.acquire.gpu.global.u32 %r4, [%d0];\nsetp.lt.u32 %p1, %r4, %r2;\n@%p1 bra wait;\n");
  const auto report = p.launch(p.buffer("out", std::vector<uint32_t>{0}), 0, 32, 2 * 148);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

// --- The order of products -----------------------------------------------------------------------

// D at column 0 from an A of ones at column 32, then a second product: into columns 32 and on, or
// into the same accumulator. Every thread stores its first cell of D.
LaunchReport two_products(const char* second, const char* policy, bool reorder, float* value) {
  MachineOptions options = checked(policy);
  options.reorder_products = reorder;
  std::string stores;
  for (int i = 0; i < 32; ++i) stores += std::string(i == 0 ? "" : ", ") + "%r20";
  PtxProgram p(
      "mov.u32 %r2, tile;\nmov.u32 %r3, bar;\nmov.u32 %r4, slot;\nmov.u32 %r20, 0x3c003c00;\n"
      "setp.eq.u32 %p1, %r0, 0;\nsetp.lt.u32 %p2, %r0, 32;\nshl.b32 %r5, %r0, 5;\n"
      "add.u32 %r5, %r5, %r2;\nst.shared.v4.b32 [%r5], {%r20, %r20, %r20, %r20};\n"
      "st.shared.v4.b32 [%r5+16], {%r20, %r20, %r20, %r20};\n"
      "@%p1 mbarrier.init.shared.b64 [%r3], 1;\n@!%p2 bra allocated;\n"
      "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 64;\n"
      "allocated: fence.proxy.async.shared::cta;\nbar.sync 0;\nld.shared.u32 %r10, [%r4];\n"
      "and.b32 %r11, %r0, 96;\nshl.b32 %r11, %r11, 16;\nadd.u32 %r11, %r11, %r10;\n"
      "tcgen05.st.sync.aligned.32x32b.x32.b32 [%r11+32], {" +
          stores +
          "};\ntcgen05.wait::st.sync.aligned;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
          "tcgen05.fence::after_thread_sync;\nshr.u32 %r7, %r2, 4;\ncvt.u64.u32 %d2, %r7;\n"
          "or.b64 %d3, %d2, 0x0000401000080000;\nsetp.ne.u32 %p3, %r0, %r0;\n"
          "@!%p1 bra wait;\n"
          "tcgen05.mma.cta_group::1.kind::f16 [%r10], [%r10+32], %d3, 0x08040010, %p3;\n" +
          second +
          "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3];\n"
          "wait: mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0;\n@!%p4 bra wait;\n"
          "tcgen05.fence::after_thread_sync;\n"
          "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r12}, [%r11];\ntcgen05.wait::ld.sync.aligned;\n"
          "mul.wide.u32 %d4, %r0, 4;\nadd.u64 %d4, %d4, %d0;\nst.global.b32 [%d4], %r12;\n"
          "tcgen05.fence::before_thread_sync;\nbar.sync 0;\n@!%p2 bra end;\n"
          "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;\nend:\n",
      options,
      ".shared .align 1024 .b8 tile[4096];\n.shared .align 8 .b64 bar, first;\n"
      ".shared .align 4 .b32 slot;\n");
  const uint64_t out = p.buffer("out", 512);
  const auto report = p.launch(out, 0, 128);
  *value = p.read<float>(out, 128)[77];
  return report;
}

TEST(ReorderedProducts, OfOtherAccumulatorsOvertakeAndAreNamed) {
  const char* over_a = "tcgen05.mma.cta_group::1.kind::f16 [%r10+32], %d3, %d3, 0x08040010, %p3;\n";
  for (const char* policy : {"eager", "late", "random", "split"}) {
    float value = 0;
    const auto in_order = two_products(over_a, policy, false, &value);
    EXPECT_EQ(severity(in_order, "product-order"), "") << policy;
    EXPECT_TRUE(in_order.passed()) << policy << text_of(in_order);
    EXPECT_EQ(value, 16) << policy;
    const auto reordered = two_products(over_a, policy, true, &value);
    EXPECT_EQ(severity(reordered, "product-order"), "formal") << policy << text_of(reordered);
    EXPECT_TRUE(reordered.passed()) << policy << text_of(reordered);
    if (std::string(policy) == "late") {
      EXPECT_EQ(value, 22);
    }
  }
}

TEST(ReorderedProducts, DoNotOvertakeOneWhoseCommitWasWaitedForRelaxed) {
  const char* after_first =
      "mov.u32 %r6, first;\nmbarrier.init.shared.b64 [%r6], 1;\n"
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];\n"
      "done: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p5, [%r6], 0;\n"
      "@!%p5 bra done;\ntcgen05.fence::after_thread_sync;\n"
      "tcgen05.mma.cta_group::1.kind::f16 [%r10+32], %d3, %d3, 0x08040010, %p3;\n";
  for (const char* policy : {"eager", "late", "random", "split"}) {
    float value = 0;
    const auto report = two_products(after_first, policy, true, &value);
    EXPECT_EQ(severity(report, "product-order"), "") << policy << text_of(report);
    EXPECT_TRUE(report.passed()) << policy << text_of(report);
    EXPECT_EQ(value, 16) << policy;
  }
}

TEST(ReorderedProducts, OfOneAccumulatorStayInOrder) {
  const char* again = "tcgen05.mma.cta_group::1.kind::f16 [%r10], %d3, %d3, 0x08040010, %p1;\n";
  for (const char* policy : {"eager", "late", "random", "split"}) {
    float value = 0;
    const auto report = two_products(again, policy, true, &value);
    EXPECT_EQ(severity(report, "product-order"), "") << policy << text_of(report);
    EXPECT_TRUE(report.passed()) << policy << text_of(report);
    EXPECT_EQ(value, 32) << policy;
  }
}

}  // namespace
}  // namespace ptxemu
