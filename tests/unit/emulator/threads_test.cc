// Clusters on several host threads: the same results, findings and traces for any number of them.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "core/sanitizers.h"
#include "emulator/isa/code.h"
#include "emulator/machine/cluster_runs.h"
#include "ptx_program.h"

namespace ptxemu {
namespace {

constexpr uint32_t kThreads[] = {1, 2, 5, 0};

MachineOptions with_threads(uint32_t threads, const std::string& policy = "eager") {
  MachineOptions options;
  options.threads = threads;
  options.policy = policy;
  options.seed = 7;
  return options;
}

// Each CTA sums 1 .. 64 times its number through shared memory, and stores its clock beside it:
// the clock shows in which order its own warps ran.
const char* const kSums = R"(
.shared .align 4 .b32 sum;
mov.u32 %r1, %ctaid.x;
mov.u32 %r10, sum;
setp.eq.u32 %p0, %r0, 0;
mov.u32 %r2, 0;
@%p0 st.shared.u32 [%r10], %r2;
bar.sync 0;
add.u32 %r3, %r0, 1;
mul.lo.u32 %r3, %r3, %r1;
atom.shared.add.u32 %r4, [%r10], %r3;
mov.u32 %r6, %clock;
bar.sync 0;
ld.shared.u32 %r5, [%r10];
mad.lo.u32 %r7, %r1, 64, %r0;
mul.wide.u32 %d2, %r7, 12;
add.u64 %d3, %d0, %d2;
st.global.u32 [%d3], %r5;
st.global.u32 [%d3+4], %r6;
st.global.u32 [%d3+8], %r4;)";

std::vector<uint32_t> run_sums(uint32_t threads, const std::string& policy, LaunchReport* report) {
  constexpr uint32_t kCtas = 33;
  PtxProgram program(kSums, with_threads(threads, policy));
  const uint64_t out = program.buffer("out", kCtas * 64 * 12);
  *report = program.launch(out, 0, 64, kCtas);
  return program.read<uint32_t>(out, kCtas * 64 * 3);
}

TEST(HostThreads, IndependentClustersGiveTheSameBitsOnAnyNumber) {
  for (const std::string policy : {"eager", "late", "random", "split"}) {
    LaunchReport alone;
    const auto expected = run_sums(1, policy, &alone);
    ASSERT_EQ(alone.status, "ok") << text_of(alone);
    for (size_t i = 0; i < expected.size(); i += 3) {
      ASSERT_EQ(expected[i], 64 * 65 / 2 * (i / 3 / 64)) << policy << i;
    }
    for (uint32_t threads : kThreads) {
      LaunchReport report;
      EXPECT_EQ(run_sums(threads, policy, &report), expected) << policy << threads;
      EXPECT_EQ(report.status, "ok") << text_of(report);
      EXPECT_EQ(report.warp_instructions, alone.warp_instructions);
      EXPECT_EQ(report.moves, alone.moves);
    }
  }
}

// Which CTA gets which number depends on the order of the atomics, which is fixed.
TEST(HostThreads, ACounterInGlobalMemoryIsTakenInAFixedOrder) {
  const char* const body = R"(
mov.u32 %r1, %ctaid.x;
atom.global.add.u32 %r2, [%d1], 1;
mul.wide.u32 %d2, %r2, 4;
add.u64 %d3, %d0, %d2;
st.global.u32 [%d3], %r1;)";
  std::vector<uint32_t> expected;
  for (uint32_t threads : kThreads) {
    PtxProgram program(body, with_threads(threads, "random"));
    const uint64_t out = program.buffer("out", 400), counter = program.buffer<uint32_t>("n", {0});
    const auto report = program.launch(out, counter, 1, 100);
    ASSERT_EQ(report.status, "ok") << text_of(report);
    const auto order = program.read<uint32_t>(out, 100);
    EXPECT_EQ(std::set<uint32_t>(order.begin(), order.end()).size(), 100u);
    if (expected.empty()) expected = order;
    EXPECT_EQ(order, expected) << threads;
  }
}

// Every CTA waits for the one after it, so all of them must be there together.
TEST(HostThreads, ResidentClustersMayWaitForOneAnother) {
  const char* const body = R"(
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %nctaid.x;
mul.wide.u32 %d2, %r1, 4;
add.u64 %d3, %d0, %d2;
add.u32 %r3, %r1, 1;
mov.u32 %r5, 0;
setp.eq.u32 %p0, %r3, %r2;
@%p0 bra GO;
WAIT:
ld.acquire.gpu.global.u32 %r5, [%d3+4];
setp.eq.u32 %p1, %r5, 0;
@%p1 bra WAIT;
GO:
add.u32 %r5, %r5, 1;
st.release.gpu.global.u32 [%d3], %r5;)";
  for (uint32_t threads : {1u, 0u}) {
    PtxProgram program(body, with_threads(threads));
    const uint64_t out = program.buffer("out", std::vector<uint32_t>(16, 0));
    const auto report = program.launch(out, 0, 1, 16);
    ASSERT_EQ(report.status, "ok") << text_of(report);
    std::vector<uint32_t> expected(16);
    std::iota(expected.rbegin(), expected.rend(), 1);
    EXPECT_EQ(program.read<uint32_t>(out, 16), expected);
  }
}

// An atomic that changes nothing is a poll, and the CTA that it waits for must get its turn.
TEST(HostThreads, ACtaMayPollByAnAtomic) {
  for (const char* poll : {"atom.acquire.gpu.global.add.u32 %r2, [%d0], 0;",
                           "atom.acquire.gpu.global.cas.b32 %r2, [%d0], 0, 0;",
                           "atom.acquire.gpu.global.or.b32 %r2, [%d0], 0;"}) {
    PtxProgram program(
        std::string("mov.u32 %r1, %ctaid.x;\nsetp.ne.u32 %p0, %r1, 0;\n@%p0 bra GO;\n"
                    "WAIT: ") +
            poll +
            "\nsetp.ne.u32 %p1, %r2, 7;\n@%p1 bra WAIT;\nret;\n"
            "GO: atom.release.gpu.global.add.u32 %r2, [%d0], 1;\n",
        with_threads(1));
    const uint64_t out = program.buffer("out", std::vector<uint32_t>(1, 0));
    const auto report = program.launch(out, 0, 1, 8);
    EXPECT_EQ(report.status, "ok") << poll << text_of(report);
  }
}

TEST(HostThreads, TheFirstClustersTrapIsTheOneReported) {
  const char* const body = R"(
mov.u32 %r1, %ctaid.x;
rem.u32 %r2, %r1, 8;
setp.ne.u32 %p0, %r2, 5;
@%p0 bra DONE;
st.global.u32 [%d0+64], %r1;
DONE:)";
  for (uint32_t threads : kThreads) {
    PtxProgram program(body, with_threads(threads));
    const auto report = program.launch(program.buffer("out", 64), 0, 1, 64);
    EXPECT_EQ(report.status, "trap");
    ASSERT_EQ(report.findings.size(), 1u) << text_of(report);
    EXPECT_EQ(report.findings[0].rule, "out-of-bounds");
    EXPECT_EQ(report.findings[0].cta[0], 5u);
    EXPECT_EQ(report.findings[0].count, 1u);
  }
}

TEST(HostThreads, DeadlockedClustersAreListedInOrderAndTheOthersRun) {
  const char* const body = R"(
mov.u32 %r1, %ctaid.x;
rem.u32 %r2, %r1, 4;
setp.eq.u32 %p0, %r2, 2;
@%p0 bar.sync 1, 64;
mul.wide.u32 %d2, %r1, 4;
add.u64 %d3, %d0, %d2;
st.global.u32 [%d3], %r1;)";
  for (uint32_t threads : kThreads) {
    PtxProgram program(body, with_threads(threads));
    const uint64_t out = program.buffer("out", std::vector<uint32_t>(12, 99));
    const auto report = program.launch(out, 0, 32, 12);
    EXPECT_EQ(report.status, "deadlock");
    ASSERT_EQ(report.deadlock.size(), 3u) << text_of(report);
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(report.deadlock[i].cta[0], 4 * i + 2);
    const auto values = program.read<uint32_t>(out, 12);
    for (uint32_t i = 0; i < 12; ++i) EXPECT_EQ(values[i], i % 4 == 2 ? 99 : i);
  }
}

TEST(HostThreads, AnEndlessLoopEndsTheLaunch) {
#if defined(FA4_ADDRESS_SANITIZER) || defined(FA4_THREAD_SANITIZER)
  GTEST_SKIP() << "the loop is given up after 400 million instructions, too many here";
#endif
  const char* const body = R"(
mov.u32 %r1, %ctaid.x;
LOOP:
setp.eq.u32 %p0, %r1, 1;
@%p0 bra LOOP;)";
  PtxProgram program(body, with_threads(2));
  const auto report = program.launch(program.buffer("out", 64), 0, 1, 4);
  EXPECT_EQ(report.status, "deadlock");
  ASSERT_EQ(report.deadlock.size(), 1u) << text_of(report);
  EXPECT_EQ(report.deadlock[0].cta[0], 1u);
}

TEST(HostThreads, WhatKernelsPrintStandsInTheOrderOfTheClusters) {
  const std::string head =
      ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
      ".global .align 1 .b8 text[8] = {67, 84, 65, 32, 37, 100, 10, 0};\n";
  const char* const body = R"(
.local .align 8 .b8 buffer[8];
mov.u32 %r1, %ctaid.x;
mov.u64 %d2, buffer;
cvta.local.u64 %d3, %d2;
st.local.u32 [%d2], %r1;
mov.u64 %d4, text;
cvta.global.u64 %d5, %d4;
{
.param .b64 p0;
.param .b64 p1;
.param .b32 q;
st.param.b64 [p0], %d5;
st.param.b64 [p1], %d3;
call.uni (q), vprintf, (p0, p1);
})";
  std::string expected;
  for (int i = 0; i < 20; ++i) expected += "CTA " + std::to_string(i) + "\n";
  for (uint32_t threads : kThreads) {
    PtxProgram program(body, with_threads(threads), head);
    const auto report = program.launch(0, 0, 1, 20);
    EXPECT_EQ(report.status, "ok") << text_of(report);
    EXPECT_EQ(report.printed, expected);
  }
}

TEST(HostThreads, TracesAndLineCountsDoNotDependOnThem) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("ptxemu_threads_" + std::to_string(getpid()) + ".json");
  std::string expected;
  for (uint32_t threads : kThreads) {
    MachineOptions options = with_threads(threads, "random");
    options.trace_file = file.string();
    options.count_lines = true;
    PtxProgram program(kSums, options);
    const auto report = program.launch(program.buffer("out", 8 * 64 * 12), 0, 64, 8);
    ASSERT_EQ(report.status, "ok") << text_of(report);
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    std::filesystem::remove(file);
    if (expected.empty()) expected = text.str();
    EXPECT_EQ(text.str(), expected) << threads;
    ASSERT_EQ(report.line_counts.size(), 16u);
    for (uint32_t i = 0; i < 16; ++i) {
      EXPECT_EQ(report.line_counts[i].cta[0], i / 2);
      EXPECT_EQ(report.line_counts[i].warp, i % 2);
    }
  }
}

// --- Local memory --------------------------------------------------------------------------------

// A kernel whose 64 threads have 64 KiB of .local each, in 12 clusters; it calls `callee`.
constexpr uint64_t kLocalOfCluster = 64 * 65536;
std::string with_local_memory(const std::string& callee = "") {
  return ".local .align 4 .b8 x[65536];\nst.local.u32 [x+64], %r0;\nld.local.u32 %r1, [x+64];\n"
         "mul.wide.u32 %d2, %r0, 4;\nadd.u64 %d3, %d0, %d2;\nst.global.u32 [%d3], %r1;\n" +
         (callee.empty() ? "" : "call " + callee + ";\n");
}
const char* const kLeaf =
    ".func leaf()\n{\n.local .align 4 .b8 y[65536];\nst.local.u32 [y], 1;\nret;\n}\n";
const char* const kCircle =
    ".func odd();\n.func even()\n{\ncall odd;\nret;\n}\n"
    ".func odd()\n{\n.reg .pred %p;\nsetp.eq.u32 %p, 0, 0;\n@%p ret;\ncall even;\nret;\n}\n";

uint64_t threads_of(const std::string& body, uint64_t most, const std::string& head = "") {
  const std::shared_ptr<const Module> module =
      parse_module(".version 8.8\n.target sm_100a\n.address_size 64\n" + head +
                   "\n.visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n" +
                   body + "ret;\n}\n");
  const auto code = decode_kernel(module, "k", {});
  Launch launch;
  launch.code = code.get();
  launch.shape.block[0] = 64;
  launch.clusters = 12;
  launch.options.threads = 8;
  launch.options.max_local_memory = most;
  return host_threads(launch);
}

TEST(LocalMemory, OfAllClustersThatRunSideBySideStaysWithinTheLimit) {
  const std::string body = with_local_memory();
  EXPECT_EQ(threads_of(body, 0), 8u);
  EXPECT_EQ(threads_of(body, 1 << 30), 8u);
  EXPECT_EQ(threads_of(body, 3 * kLocalOfCluster + kLocalOfCluster / 2), 3u);
  EXPECT_EQ(threads_of(body, kLocalOfCluster / 2), 1u);
}

// Each of 32 lanes may be in a call of its own, whose frame holds the .local of 32.
TEST(LocalMemory, OfCallsCountsForEachLaneAndIsUnknownWhereTheyMayRecurse) {
  const std::string calls = with_local_memory("leaf");
  EXPECT_EQ(threads_of(calls, 67 * kLocalOfCluster, kLeaf), 2u);
  EXPECT_EQ(threads_of(calls, 8 * 34 * kLocalOfCluster, kLeaf), 8u);
  EXPECT_EQ(threads_of(with_local_memory("even"), 1 << 30, kCircle), 1u);
  const std::string by_pointer = "mov.u64 %d1, leaf;\ncall %d1, t;\nt: .callprototype _ ();\n";
  EXPECT_EQ(threads_of(with_local_memory() + by_pointer, 1 << 30, kLeaf), 1u);
}

TEST(LocalMemory, EndsALaunchAlikeOnAnyNumberOfThreads) {
  for (const auto& [most, status] :
       {std::pair{2 * kLocalOfCluster, "ok"}, std::pair{kLocalOfCluster + (1 << 20), "ok"},
        std::pair{kLocalOfCluster / 2, "trap"}}) {
    std::string expected;
    for (uint32_t threads : kThreads) {
      MachineOptions options = with_threads(threads);
      options.max_local_memory = most;
      PtxProgram program(with_local_memory(), options);
      const auto report = program.launch(program.buffer("out", 4096), 0, 64, 12);
      EXPECT_EQ(report.status, status) << text_of(report);
      if (expected.empty()) expected = text_of(report);
      EXPECT_EQ(text_of(report), expected) << threads;
    }
  }
}

}  // namespace
}  // namespace ptxemu
