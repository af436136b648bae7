// PTX from elsewhere: whatever it says, it is refused, ends as a trap or runs inside the emulated
// machine.
#include <fmt/format.h>

#include <algorithm>

#include "ptx_program.h"

namespace ptxemu {
namespace {

std::string refusal(const std::string& body, const std::string& head = "",
                    const MachineOptions& options = {}) {
  try {
    PtxProgram p(body, options, head);
    p.launch(p.buffer("out", 256));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void expect_refusal(const std::string& why, const std::string& body, const std::string& head = "") {
  const std::string said = refusal(body, head);
  EXPECT_NE(said.find(why), std::string::npos) << body << "\nsaid: " << said;
}

// The rule of the finding that ends the launch as a trap, and what it says.
void expect_trap(const std::string& rule, const std::string& says, const LaunchReport& report) {
  EXPECT_EQ(report.status, "trap") << text_of(report);
  EXPECT_FALSE(report.passed());
  const bool found = std::any_of(
      report.findings.begin(), report.findings.end(),
      [&](const auto& f) { return f.rule == rule && f.message.find(says) != std::string::npos; });
  EXPECT_TRUE(found) << "no " << rule << " that says " << says << ": " << text_of(report);
}

LaunchReport run(const std::string& body, const std::string& head = "",
                 const MachineOptions& options = {}, uint32_t ctas = 1) {
  PtxProgram p(body, options, head);
  return p.launch(p.buffer("out", 256), p.buffer("in", 256), 32, ctas);
}

TEST(Sink, TakesTheResultOfEveryInstructionThatHasOne) {
  for (const char* statement :
       {"activemask.b32 _;",
        "bar.red.popc.u32 _, 0, %p1;",
        "bar.red.and.pred _, 0, %p1;",
        "getctarank.shared::cluster.u32 _, %r1;",
        "mapa.shared::cluster.u32 _, %r1, 0;",
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 _, %q0;",
        "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {_, %r2, _, _}, %q0;",
        "match.any.sync.b32 _, %r1, -1;",
        "match.all.sync.b32 _|%p2, %r1, -1;",
        "match.all.sync.b32 %r2|_, %r1, -1;",
        "mbarrier.pending_count.b64 _, %d2;",
        "createpolicy.fractional.L2::evict_first.b64 _;",
        "redux.sync.add.u32 _, %r1, -1;",
        "setp.eq.u32 _|%p2, 1, 2;",
        "setp.eq.u32 %p2|_, 1, 2;",
        "setp.eq.u32 _, 1, 2;",
        "vote.sync.all.pred _, %p1, -1;",
        "vote.sync.ballot.b32 _, %p1, -1;",
        "shfl.sync.idx.b32 _|%p2, %r1, 0, 31, -1;",
        "shfl.sync.idx.b32 %r2|_, %r1, 0, 31, -1;",
        "elect.sync _|%p2, -1;",
        "elect.sync %r2|_, -1;",
        "mov.b64 {_, %r2}, %d2;",
        "ld.global.v2.u32 {_, %r2}, [%d0];",
        "ld.global.b128 _, [%d0];",
        "atom.global.add.u32 _, [%d0], 1;",
        "cvt.u64.u32 _, %r1;",
        "add.u32 _, %r1, 1;"}) {
    const auto report =
        run(std::string("setp.eq.u32 %p1, 0, 0;\nmov.u32 %r1, 1024;\nmov.b64 %d2, 5;\n"
                        "mov.b128 %q0, {%d2, %d2};\n") +
            statement);
    EXPECT_EQ(report.status, "ok") << statement << text_of(report);
  }
}

TEST(Sink, OfATensorMemoryLoadDoesNotChangeItsReduction) {
  const std::string body =
      "mov.u32 %r1, s;\n"
      "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;\n"
      "ld.shared.u32 %r2, [%r1];\nmov.b32 %r3, 7;\nmov.b32 %r4, 3;\n"
      "tcgen05.st.sync.aligned.32x32b.x2.b32 [%r2], {%r3, %r4};\n"
      "tcgen05.wait::st.sync.aligned;\n"
      "tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32 {_, _}, %r5, [%r2];\n"
      "tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32 {%r6, %r7}, _, [%r2];\n"
      "tcgen05.wait::ld.sync.aligned;\nst.global.u32 [%d0], %r5;\n"
      "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n";
  PtxProgram p(body, {}, ".shared .align 16 .b8 s[64];", "sm_103a");
  const uint64_t out = p.buffer("out", 256);
  const auto report = p.launch(out);
  EXPECT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint32_t>(out, 1)[0], 7u);
}

TEST(Types, ThatAnInstructionDoesNotHaveAreRefused) {
  for (const char* statement :
       {"vote.sync.ballot.b16 %h1, %p1, -1;", "vote.sync.all.b32 %r1, %p1, -1;",
        "bar.red.popc.pred %p2, 0, %p1;", "bar.red.and.u32 %r1, 0, %p1;",
        "redux.sync.add.pred %p2, %p1, -1;", "redux.sync.add.u16 %h1, %h2, -1;",
        "match.any.sync.b16 %r1, %h1, -1;", "match.any.sync.b128 %r1, %q1, -1;",
        "activemask.b64 %r1;", "shfl.sync.idx.b64 %r1, %r2, 0, 31, -1;",
        "fns.b16 %h1, %h2, %h3, %h4;", "fns.b64 %d1, %d2, %d3, %d4;"}) {
    expect_refusal("is no type", statement);
  }
}

TEST(Types, OfASetOfPairsHoldTwoResults) {
  for (const char* types : {"u16.f16x2", "s16.bf16x2", "f16.f16x2", "bf16.bf16x2"}) {
    expect_refusal("is no type", fmt::format("set.eq.{} %h1, %r2, %r3;", types));
  }
  for (const char* types : {"f32.f16x2", "f16x2.bf16x2", "bf16x2.f16x2"}) {
    expect_refusal("is no type", fmt::format("set.eq.{} %r1, %r2, %r3;", types));
  }
  for (const char* types : {"u32.f16x2", "s32.bf16x2", "f16x2.f16x2", "bf16x2.bf16x2"}) {
    const std::string statement = fmt::format("set.eq.{} %r1, %r2, %r3;", types);
    EXPECT_EQ(run(statement).status, "ok") << statement;
  }
}

TEST(Types, OfPredicatesAreNoTypesOfMemory) {
  expect_refusal("a predicate; accepted: a register for", "ld.global.u8 %p1, [%d0];");
  expect_refusal("a predicate; accepted: a register for", "st.global.u8 [%d0], %p1;");
  expect_refusal("a predicate; accepted: a register for", "cvt.u16.u8 %p1, %h1;");
  expect_refusal("a register of 32 bits; accepted: a predicate", "setp.eq.u32 %r1, 1, 2;");
}

TEST(Calls, PassValuesOfTheDeclaredSize) {
  const std::string callee =
      ".func f(.param .align 4 .b8 a[256])\n{\n.reg .b32 %x;\nld.param.b32 %x, [a+128];\nret;\n}\n";
  expect_refusal("argument 0 of f has 4 bytes; accepted: 256", "{ .param .b32 a; call f, (a); }",
                 callee);
  const std::string returns =
      ".func (.param .align 4 .b8 r[65536]) f()\n{\n.reg .b32 %x;\nmov.u32 %x, 1;\n"
      "st.param.b32 [r+65532], %x;\nret;\n}\n";
  expect_refusal("result 0 of f has 4 bytes; accepted: 65536", "{ .param .b32 a; call (a), f; }",
                 returns);
  expect_refusal("0 arguments for f; accepted: 1", "call f;", callee);
}

TEST(Calls, PassNoPredicates) {
  expect_refusal("is a predicate", "call f, (1);", ".func f(.reg .pred p)\n{\nret;\n}\n");
}

TEST(Calls, ThroughAPointerPassValuesOfTheDeclaredSize) {
  const std::string head =
      ".func (.param .align 4 .b8 r[4096]) f(.param .align 4 .b8 a[4096])\n{\n.reg .b32 %x;\n"
      "ld.param.b32 %x, [a+4092];\nst.param.b32 [r+4092], %x;\nret;\n}\n";
  expect_trap("call-arguments", "argument 0 of f has 4 bytes; accepted: 4096",
              run("{ .param .b32 a; .param .b32 r; mov.u64 %d2, f;\n"
                  "p: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
                  "call (r), %d2, (a), p; }",
                  head));
}

TEST(Calls, InsideEachOtherEndAtTheDepthThatTheOptionAllows) {
  const std::string head =
      ".func f(.param .b32 n)\n{\n.reg .b32 %x<3>;\n.reg .pred %q;\n.param .b32 m;\n"
      "ld.param.b32 %x1, [n];\nsetp.eq.u32 %q, %x1, 0;\n@%q ret;\nsub.u32 %x2, %x1, 1;\n"
      "st.param.b32 [m], %x2;\ncall f, (m);\nret;\n}\n";
  const auto body = [](int depth) {
    return fmt::format("{{ .param .b32 m; mov.u32 %r1, {}; st.param.b32 [m], %r1; call f, (m); }}",
                       depth);
  };
  expect_trap("limit", "--max-call-depth is 1024", run(body(5000), head));
  MachineOptions deep;
  deep.max_call_depth = 0;
  EXPECT_EQ(run(body(100'000), head, deep).status, "ok");
  deep.max_call_depth = 20;
  EXPECT_EQ(run(body(19), head, deep).status, "ok");
  EXPECT_EQ(run(body(20), head, deep).status, "trap");
}

constexpr const char* kPrintfHead =
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n";

// printf of `format` with the 8 bytes of `value` as what follows it.
LaunchReport print(const std::string& format, uint64_t value, const MachineOptions& options = {},
                   int32_t* returned = nullptr) {
  std::string bytes;
  for (const char c : format) bytes += fmt::format("{},", static_cast<int>(c));
  const std::string head = kPrintfHead + fmt::format(".global .align 8 .b8 text[{}] = {{{}0}};\n",
                                                     format.size() + 1, bytes);
  PtxProgram p(
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\nmov.u64 %d3, text;\ncvta.global.u64 %d3, %d3;\n"
      "{ .param .b64 f; .param .b64 a; .param .b32 r;\nst.param.b64 [f], %d3;\n"
      "st.param.b64 [a], %d1;\ncall.uni (r), vprintf, (f, a);\nld.param.b32 %r1, [r]; }\n"
      "st.global.u32 [%d0], %r1;\n",
      options, head);
  const uint64_t out = p.buffer("out", 256);
  const auto report = p.launch(out, p.buffer<uint64_t>("in", {value, 42, 7}));
  if (returned != nullptr) *returned = p.read<int32_t>(out, 1)[0];
  return report;
}

TEST(Printf, FormatsAsCDoes) {
  EXPECT_EQ(print("%d|%%", static_cast<uint64_t>(-5)).printed, "-5|%");
  EXPECT_EQ(print("%-8x|", 255).printed, "ff      |");
  EXPECT_EQ(print("%08.3f", 0x4000000000000000).printed, "0002.000");
  EXPECT_EQ(print("%llu", ~uint64_t{0}).printed, "18446744073709551615");
  EXPECT_EQ(print("%hhd %c", 0x4141 | uint64_t{42} << 32).printed, "65 *");
  EXPECT_EQ(print("%p", 0x1234).printed, "0x1234");
  EXPECT_EQ(print("%*d", 5 | uint64_t{42} << 32).printed, "   42");
  EXPECT_EQ(print("%.*d", 3 | uint64_t{42} << 32).printed, "042");
  // As on the device: sizes that change nothing, and null pointers.
  EXPECT_EQ(print("%lf %hf", 0x4000000000000000).printed.substr(0, 9), "2.000000 ");
  EXPECT_EQ(print("%lc%hc", 0x41 | uint64_t{0x42} << 32).printed, "AB");
  EXPECT_EQ(print("%s|", 0).printed, "(null)|");
  EXPECT_EQ(print("%ls|", 0).printed, "(null)|");
  EXPECT_EQ(print("%p|", 0).printed, "(nil)|");
  EXPECT_EQ(print("%-8p|", 0).printed, "(nil)   |");
  EXPECT_EQ(print("%8p|", 0).printed, "   (nil)|");
  const std::string long_text(5000, 'x');
  EXPECT_EQ(print(long_text, 0).printed, long_text);
}

TEST(Printf, ReturnsTheNumberOfArguments) {
  int32_t returned = 7;
  print("text", 0, {}, &returned);
  EXPECT_EQ(returned, 0);
  print("%d and %d", 0, {}, &returned);
  EXPECT_EQ(returned, 2);
  PtxProgram p(
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\n{ .param .b64 f; .param .b64 a; .param .b32 r;\n"
      "st.param.b64 [f], 0;\nst.param.b64 [a], %d1;\ncall.uni (r), vprintf, (f, a);\n"
      "ld.param.b32 %r1, [r]; }\nst.global.u32 [%d0], %r1;\n",
      {}, kPrintfHead);
  const uint64_t out = p.buffer("out", 16);
  const auto report = p.launch(out, p.buffer("in", 16));
  EXPECT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<int32_t>(out, 1)[0], -1);
}

TEST(Records, EndTheLaunchAtTheBytesThatTheOptionAllows) {
  MachineOptions options;
  options.max_recorded = 4000;
  for (const uint32_t threads : {1u, 3u}) {
    options.threads = threads;
    options.count_lines = true;
    options.trace_file.clear();
    EXPECT_EQ(run("membar.gl;\n", "", options, 2).status, "ok");
    expect_trap("limit", "--max-recorded, 4000 bytes", run("membar.gl;\n", "", options, 1000));
    options.count_lines = false;
    options.trace_file = testing::TempDir() + "records_trace.json";
    EXPECT_EQ(run("membar.gl;\n", "", options, 2).status, "ok");
    expect_trap("limit", "--max-recorded, 4000 bytes", run("membar.gl;\n", "", options, 1000));
  }
  // Of one cluster too, in the middle.
  const std::string turns =
      "mov.u32 %r1, 0;\nagain: bar.sync 0;\nadd.u32 %r1, %r1, 1;\n"
      "setp.lt.u32 %p1, %r1, 1000;\n@%p1 bra again;\n";
  PtxProgram p(turns, options);
  expect_trap("limit", "--max-recorded, 4000 bytes",
              p.launch(p.buffer("out", 256), p.buffer("in", 256), 64, 1));
}

TEST(Printf, StoresNothingAndReadsNothingThatTheKernelDoesNotPass) {
  for (const char* format : {"%n", "%lln", "%llnd", "%2$d", "%Lf", "%5%", "%", "%99999999d",
                             "%.99999999f", "%m", "%1$*2$d", "%d%"}) {
    expect_trap("printf-format", "accepted: % flags width", print(format, 0x414141414140));
  }
}

TEST(Printf, EndsAtTheBytesThatTheOptionAllows) {
  MachineOptions options;
  options.max_printed = 100;
  EXPECT_EQ(print("%100d", 1, options).status, "ok");
  expect_trap("limit", "--max-printed, 100 bytes", print("%101d", 1, options));
}

TEST(Printf, OfManyClustersIsCountedTogether) {
  MachineOptions options;
  options.max_printed = 95;
  options.threads = 3;
  const auto report =
      run("setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\nmov.u64 %d3, text;\ncvta.global.u64 %d3, %d3;\n"
          "{ .param .b64 f; .param .b64 a; .param .b32 r;\nst.param.b64 [f], %d3;\n"
          "st.param.b64 [a], %d1;\ncall.uni (r), vprintf, (f, a); }\n",
          std::string(kPrintfHead) +
              ".global .align 8 .b8 text[11] = {48,49,50,51,52,53,54,55,56,57,0};",
          options, 64);
  expect_trap("limit", "--max-printed, 95 bytes", report);
  EXPECT_EQ(report.printed.size(), 90u);
}

TEST(Instructions, AreCountedByCluster) {
  MachineOptions options;
  options.max_instructions = 2000;
  options.threads = 3;
  const std::string loop =
      "mov.u32 %r1, 0;\nloop: add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p0, %r1, {};\n@%p0 bra loop;\n";
  const auto some = [&](int count) {
    std::string text = loop;
    return text.replace(text.find("{}"), 2, std::to_string(count));
  };
  EXPECT_EQ(run(some(500), "", options, 50).status, "ok");  // 75 000 in all
  const auto report = run(some(100'000), "", options, 50);
  expect_trap("limit", "--max-instructions is 2000", report);
  EXPECT_NE(report.findings.at(0).ptx_line, 0u);
}

// Every lane issues a product of 128 x 16 as often: 32 x 10 x 32 are more than the limit, the few
// instructions that issue them are not.
TEST(Instructions, CountProductsByTheirSize) {
  MachineOptions options;
  options.max_instructions = 2000;
  const auto products = [&](int count) {
    return run(
        "mov.u32 %r4, slot;\nmov.u32 %r2, tile;\n"
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 32;\n"
        "bar.sync 0;\nld.shared.u32 %r10, [%r4];\nshr.u32 %r7, %r2, 4;\n"
        "cvt.u64.u32 %d2, %r7;\nor.b64 %d3, %d2, 0x0000401000080000;\n"
        "setp.ne.u32 %p3, %r0, %r0;\nmov.u32 %r1, 0;\n"
        "again: tcgen05.mma.cta_group::1.kind::f16 [%r10], %d3, %d3, 0x08040010, %p3;\n"
        "add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p0, %r1, " +
            std::to_string(count) +
            ";\n@%p0 bra again;\n"
            "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;\n",
        ".shared .align 1024 .b8 tile[4096];\n.shared .align 4 .b32 slot;\n", options);
  };
  EXPECT_EQ(products(1).status, "ok");
  expect_trap("limit", "--max-instructions is 2000", products(10));
}

TEST(LocalMemory, IsWhatAThreadOfTheHardwareHas) {
  expect_refusal(".local variables of a thread of 4000000000 bytes",
                 ".local .align 4 .b8 x[4000000000];\nst.local.u32 [x], 1;\n");
  expect_refusal(".local variables of a thread of 4294967312 bytes",
                 ".local .align 4 .b8 x[4294967312];\nld.local.u32 %r1, [x+64];\n");
  EXPECT_EQ(refusal(".local .align 4 .b8 x[524288];\nst.local.u32 [x+524284], 1;\n"), "");
}

TEST(LocalMemory, EndsAtTheBytesThatTheOptionAllows) {
  MachineOptions options;
  options.max_local_memory = 1 << 20;
  expect_trap("limit", "--max-local-memory is 1048576",
              run(".local .align 4 .b8 x[40000];\nst.local.u32 [x], 1;\n", "", options));
}

TEST(LocalMemory, OfCallsInsideEachOtherIsThatOfOneThread) {
  const std::string head =
      ".func f()\n{\n.local .align 4 .b8 x[100000];\n.reg .b64 %y;\nmov.u64 %y, x;\n"
      "call f;\nret;\n}\n";
  expect_trap("local-memory", "a thread has 524288", run("call f;\n", head));
}

TEST(Parameters, OfCallsAndKernelsFitWhatThereIs) {
  expect_refusal(".param variables of calls of 4294967280 bytes",
                 "{ .param .align 4 .b8 a[4294967280]; .param .align 4 .b8 b[32];\n"
                 "st.param.b32 [b], 1; st.param.b32 [a+8], 1; }");
  Machine machine;
  const auto module = machine.load(
      ".version 8.8\n.target sm_100a\n.address_size 64\n"
      ".visible .entry k(.param .align 8 .b8 a[4294967304])\n{\nret;\n}\n");
  EXPECT_THROW(machine.parameter_sizes(module, "k"), InputError);
}

TEST(ModuleVariables, TakeMemoryOnlyWhereTheyAreUsed) {
  Machine machine;
  const auto module = machine.load(
      ".version 8.8\n.target sm_100a\n.address_size 64\n.global .align 4 .b8 x[12000000000];\n"
      ".visible .entry k()\n{\nret;\n}\n");
  EXPECT_EQ(machine.symbol(module, "x").second, 12'000'000'000u);
  EXPECT_EQ(machine.launch(module, {.kernel = "k", .block = {32, 1, 1}}, {}).status, "ok");
}

// One of the module with the same name is another variable.
TEST(ModuleVariables, OfABodyAreNotThoseOfTheModule) {
  for (const char* space : {"global", "const"}) {
    const std::string body = fmt::format(".{0} .u32 x = 2;\nld.{0}.u32 %r1, [x];", space);
    expect_refusal("variable x in ." + std::string(space) + " has no address", body,
                   fmt::format(".{} .u32 x = 1;", space));
  }
}

TEST(ModuleVariables, CountAgainstTheMemoryThatTheOptionAllows) {
  MachineOptions options;
  options.max_memory = 1 << 20;
  Machine machine(options);
  machine.allocate(1 << 19, "half");
  try {
    machine.load(
        ".version 8.8\n.target sm_100a\n.address_size 64\n.global .align 4 .b8 x[524289];\n"
        ".visible .entry k()\n{\nret;\n}\n");
    FAIL() << "loaded";
  } catch (const MemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("--max-memory"), std::string::npos) << error.what();
  }
}

TEST(ModuleVariables, OfALongChainOfTablesAreFoundOneByOne) {
  std::string text = ".version 8.8\n.target sm_100a\n.address_size 64\n.global .b64 t0 = 0;\n";
  constexpr int kTables = 20'000;
  for (int i = 1; i < kTables; ++i) text += fmt::format(".global .b64 t{} = t{};\n", i, i - 1);
  text += fmt::format(".visible .entry k()\n{{\n.reg .b64 %d;\nmov.u64 %d, t{};\nret;\n}}\n",
                      kTables - 1);
  Machine machine;
  const auto module = machine.load(text);
  EXPECT_TRUE(machine.parameter_sizes(module, "k").empty());
}

TEST(ModuleVariables, AreNotKeptByEachTestOfASpace) {
  std::string head, body = "mov.u64 %d2, c7;\n";
  for (int i = 0; i < 16000; ++i) head += fmt::format(".const .u32 c{} = 1;\n", i);
  // Each kept all of them: 3 GB.
  for (int i = 0; i < 10000; ++i) body += "isspacep.global %p1, %d2;\n";
  body +=
      "isspacep.const %p2, %d2;\nselp.u32 %r1, 1, 0, %p1;\nselp.u32 %r2, 1, 0, %p2;\n"
      "st.global.v2.u32 [%d0], {%r1, %r2};\n";
  PtxProgram p(body, {}, head);
  const uint64_t out = p.buffer("out", 8);
  const auto report = p.launch(out, 0, 1);
  EXPECT_EQ(report.status, "ok") << text_of(report);
  EXPECT_EQ(p.read<uint32_t>(out, 2), (std::vector<uint32_t>{0, 1}));
}

TEST(Directives, OfAnySizeAreNoDivisionByZero) {
  for (const char* directive :
       {".maxntid 65536, 65536, 1", ".minnctapersm 134217728", ".maxntid 4294967295, 4294967295",
        ".minnctapersm 4294967295 .maxntid 1024"}) {
    Machine machine;
    const auto module =
        machine.load(fmt::format(".version 8.8\n.target sm_100a\n.address_size 64\n"
                                 ".visible .entry k() {}\n{{\nret;\n}}\n",
                                 directive));
    EXPECT_LE(machine.facts(module, "k").max_threads, 1024u) << directive;
    EXPECT_EQ(machine.launch(module, {.kernel = "k", .block = {32, 1, 1}}, {}).status, "ok")
        << directive;
  }
}

TEST(TensorMemory, HalvesOfATransferLieInside) {
  expect_refusal("immHalfSplitoff 4294967295; accepted: 0 to 511",
                 "tcgen05.st.sync.aligned.16x32bx2.x1.b32 [%r2], 4294967295, {%r3};");
}

TEST(AsyncStores, TakeElementsOfEightBytesAtMost) {
  expect_refusal("is no type",
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b128 [%r3], "
                 "{%q0,%q1,%q2,%q3}, [%r2];");
}

TEST(Matrices, OfLanesThatDoNotTakePartReadAsZeros) {
  PtxProgram p(
      "mov.u32 %r1, s;\nmov.u32 %r5, -1;\nsetp.lt.u32 %p0, %r0, 4;\n@%p0 bra some;\nbra.uni end;\n"
      "some: st.shared.v4.u32 [%r1], {%r5, %r5, %r5, %r5};\n"
      "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r2}, [%r1];\n"
      "mul.wide.u32 %d2, %r0, 4;\nadd.u64 %d2, %d0, %d2;\nst.global.u32 [%d2], %r2;\nend:\n",
      {}, ".shared .align 16 .b8 s[512];");
  const uint64_t out = p.buffer("out", std::vector<uint32_t>(32));
  p.launch(out);
  EXPECT_EQ(p.read<uint32_t>(out, 4), (std::vector<uint32_t>{~0u, ~0u, 0, 0}));
}

// A copy through a map that the kernel gets as its parameter or makes itself.
LaunchReport copy_box(const std::vector<uint32_t>& box, const std::string& edit = "") {
  PtxProgram p(
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\nmov.u32 %r2, s;\nadd.u32 %r3, %r2, 16384;\n"
      "mbarrier.init.shared::cta.b64 [%r3], 1;\n" +
          (edit.empty() ? std::string("mov.b64 %d2, map;\ncvta.param.u64 %d3, %d2;\n")
                        : "mov.u64 %d3, %d1;\n" + edit) +
          "mov.u32 %r4, 0;\n"
          "cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2], "
          "[%d3, {%r4, %r4, %r4, %r4}], [%r3];\n",
      {}, ".shared .align 1024 .b8 s[20480];");
  const uint64_t data = p.buffer("data", 4096);
  TensorMapRequest request;
  request.address = data;
  request.dtype = "u8";
  request.dims = {16, 16, 1, 1};
  request.strides_bytes = {16, 256, 256};
  request.box = box;
  const auto map = Machine::encode_tensor_map(request);
  const uint64_t in = p.buffer("in", std::vector<std::byte>(map.begin(), map.end()));
  return p.launch(data, in, 32, 1, 1, 0, map);
}

TEST(TensorMaps, WithBoxesThatNoSharedMemoryHoldsAreRefused) {
  EXPECT_EQ(copy_box({16, 16, 1, 1}).status, "ok");
  expect_trap("bad-tensor-map", "a box of 16777216 rows of 256 bytes",
              copy_box({256, 256, 256, 256}));
  expect_trap("out-of-bounds", "shared address", copy_box({256, 256, 1, 1}));
}

TEST(Variables, ThatDoNotFitAreNamedWithTheirLineAndTheLimit) {
  const std::string said = refusal("", ".global .b8 small[8];\n.global .b8 x[1099511627776];\n");
  for (const char* part : {"PTX line 5", "`x`", "1099511627776 bytes", "1 to 17179869184"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\nsaid: " << said;
  }
}

TEST(Variables, OfConstFillOneBankAtMost) {
  EXPECT_EQ(refusal("", ".const .b8 a[3];\n.const .align 4 .b8 b[65532];\n"), "");
  expect_refusal("PTX line 5: `b` of 65533 bytes after 4 others in .const; accepted: 65536 in all",
                 "", ".const .b8 a[3];\n.const .align 4 .b8 b[65533];\n");
  expect_refusal("`c` of 70000 bytes after 0 others", "", ".const .b8 c[70000];\n");
}

TEST(DynamicSharedMemory, CountsFromWhereItBegins) {
  const auto launch = [](uint32_t bytes) {
    PtxProgram p("mov.u32 %r1, all;\nmov.u32 %r2, fixed;\nst.shared.u32 [%r1], %r2;\n", {},
                 ".extern .shared .align 1024 .b8 all[];\n.shared .align 4 .b8 fixed[4];\n");
    return p.launch(p.buffer("out", 16), 0, 1, 1, 1, bytes).status;
  };
  EXPECT_EQ(launch(232448 - 1024), "ok");
  EXPECT_THROW(launch(232448 - 4), InputError);
}

TEST(TensorMaps, ThatAKernelHasEditedAreCheckedBeforeUse) {
  expect_trap("bad-tensor-map", "with a swizzle of 32 bytes at most so many are accepted",
              copy_box({64, 16, 1, 1},
                       "tensormap.replace.tile.swizzle_mode.global.b1024.b32 "
                       "[%d3], 1;\n"));
  expect_trap("bad-tensor-map", "a multiple of 16",
              copy_box({16, 16, 1, 1},
                       "tensormap.replace.tile.global_address.global.b1024.b64 "
                       "[%d3], 12345;\n"));
}

TEST(AsyncCopies, ThatNobodyWaitsForDoNotFillTheHost) {
  MachineOptions options;
  options.policy = "late";
  const auto report =
      run("mov.u32 %r2, s;\nmov.u32 %r1, 0;\n"
          "loop: cp.async.ca.shared.global [%r2], [%d0], 16;\nadd.u32 %r1, %r1, 1;\n"
          "setp.lt.u32 %p0, %r1, 20000;\n@%p0 bra loop;\ncp.async.wait_all;\n",
          ".shared .align 16 .b8 s[512];", options);
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

}  // namespace
}  // namespace ptxemu
