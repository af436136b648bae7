// Warp instructions a second of the emulator.
//
//   bench_emulator [--ptx F.ptx --launch F.json [--warps FIRST-LAST]] [Google Benchmark's options]
//
// Without a kernel: loops like those of an attention kernel's softmax warps (one 128-element row a
// thread, scaled, reduced, exponentiated and packed), single statements, and tensor-core products.
// With one, that kernel alone: a launch file as `ptxemu run` takes it, and of which warps the
// statements other than mov are counted.
#include <benchmark/benchmark.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "emulator_kernel_bench.h"
#include "ptxemu/machine.h"

namespace {

std::string head() {
  return ".version 9.0\n.target sm_100a\n.address_size 64\n"
         ".visible .entry k(.param .u64 out, .param .u32 n)\n{\n"
         ".reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<16>;\n"
         ".reg .f32 %f<140>;\n.reg .b64 %d<140>;\n.reg .b32 %h<70>;\n"
         "ld.param.u64 %rd1, [out];\nld.param.u32 %r1, [n];\nmov.u32 %r2, %tid.x;\n"
         "cvt.rn.f32.u32 %f130, %r2;\nmov.f32 %f131, 0f3DCCCCCD;\n";
}
std::string tail() {
  return "add.s32 %r1, %r1, -1;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra LOOP;\n"
         "st.global.f32 [%rd1], %f129;\nst.global.b32 [%rd1], %h0;\nret;\n}\n";
}
std::string f(int i) { return "%f" + std::to_string(i); }
std::string d(int i) { return "%d" + std::to_string(i); }

// The statements of one block of 128 keys, with the moves that compilers write around .f32x2.
std::string softmax_body() {
  std::string text = "LOOP:\n";
  for (int i = 0; i < 128; ++i) {
    text += "add.f32 " + f(i) + ", %f130, 0f3F800000;\n";
  }
  text += "mov.f32 %f128, %f0;\n";
  for (int i = 1; i < 128; ++i) text += "max.ftz.f32 %f128, %f128, " + f(i) + ";\n";
  text += "neg.f32 %f129, %f128;\nmov.b64 %d128, {%f131, %f131};\nmov.b64 %d129, {%f129, %f129};\n";
  for (int i = 0; i < 128; i += 2) {
    text += "mov.b64 " + d(i) + ", {" + f(i) + ", " + f(i + 1) + "};\n";
    text += "fma.rn.ftz.f32x2 " + d(i) + ", " + d(i) + ", %d128, %d129;\n";
    text += "mov.b64 {" + f(i) + ", " + f(i + 1) + "}, " + d(i) + ";\n";
    text += "ex2.approx.ftz.f32 " + f(i) + ", " + f(i) + ";\n";
    text += "ex2.approx.ftz.f32 " + f(i + 1) + ", " + f(i + 1) + ";\n";
    text += "cvt.rn.bf16x2.f32 %h" + std::to_string(i / 2) + ", " + f(i + 1) + ", " + f(i) + ";\n";
  }
  text += "mov.f32 %f129, %f0;\n";
  for (int i = 1; i < 128; ++i) text += "add.ftz.f32 %f129, %f129, " + f(i) + ";\n";
  return text;
}

// One statement 256 times.
std::string repeated(const std::string& statement) {
  std::string text = "LOOP:\n";
  for (int i = 0; i < 256; ++i) text += statement + "\n";
  return text;
}

void run(benchmark::State& state, const std::string& body, bool check) {
  ptxemu::MachineOptions options;
  options.threads = 1;
  options.check = check;
  ptxemu::Machine machine(options);
  const auto module = machine.load(head() + body + tail(), "bench.ptx");
  const uint64_t out = machine.allocate(4096, "out");
  const uint32_t iterations = 200;
  std::vector<std::vector<std::byte>> arguments(2);
  arguments[0].resize(8);
  std::memcpy(arguments[0].data(), &out, 8);
  arguments[1].resize(4);
  std::memcpy(arguments[1].data(), &iterations, 4);
  ptxemu::LaunchRequest request;
  request.block = {128, 1, 1};
  uint64_t instructions = 0, counted = 0;
  for (auto _ : state) {
    const auto report = machine.launch(module, request, arguments);
    if (report.status == "trap" || report.status == "deadlock") {
      state.SkipWithError(report.status.c_str());
      return;
    }
    instructions += report.warp_instructions;
    counted += report.warp_instructions - report.moves;
  }
  state.counters["warp_instructions/s"] =
      benchmark::Counter(static_cast<double>(instructions), benchmark::Counter::kIsRate);
  state.counters["without mov/s"] =
      benchmark::Counter(static_cast<double>(counted), benchmark::Counter::kIsRate);
}

void softmax(benchmark::State& state) { run(state, softmax_body(), state.range(0) != 0); }
BENCHMARK(softmax)->ArgName("check")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

const std::pair<const char*, const char*> kStatements[] = {
    {"add.f32", "add.f32 %f2, %f3, %f131;"},
    {"fma.rn.ftz.f32x2", "fma.rn.ftz.f32x2 %d2, %d3, %d4, %d5;"},
    {"add.rm.ftz.f32x2", "add.rm.ftz.f32x2 %d2, %d3, %d4;"},
    {"ex2.approx.ftz.f32", "ex2.approx.ftz.f32 %f2, %f130;"},
    {"max.ftz.f32", "max.ftz.f32 %f2, %f3, %f130;"},
    {"cvt.rn.bf16x2.f32", "cvt.rn.bf16x2.f32 %h2, %f2, %f130;"},
    {"cvt.rn.e4m3x2", "{\n.reg .b16 x;\ncvt.rn.satfinite.e4m3x2.f32 x, %f2, %f130;\n}"},
    {"mov.b64 pack", "mov.b64 %d2, {%f2, %f3};"},
    {"mov.b64 unpack", "mov.b64 {%f2, %f3}, %d2;"},
    {"mov.b32", "mov.b32 %r5, %r6;"},
    {"add.s32", "add.s32 %r5, %r6, %r2;"},
    {"mad.wide.s32", "mad.wide.s32 %rd5, %r6, %r2, %rd1;"},
    {"setp.lt.s32", "setp.lt.s32 %p2, %r6, %r2;"},
    {"selp.b32", "selp.b32 %r5, %r6, %r2, %p2;"},
    {"@p mov.b32", "@%p2 mov.b32 %r5, %r6;"},
    {"lg2.approx.ftz.f32", "lg2.approx.ftz.f32 %f2, %f130;"},
    {"rcp.approx.ftz.f32", "rcp.approx.ftz.f32 %f2, %f130;"},
};

void register_statements() {
  for (const auto& [name, statement] : kStatements) {
    benchmark::RegisterBenchmark(name, [body = repeated(statement)](benchmark::State& state) {
      run(state, body, false);
    })->Unit(benchmark::kMillisecond);
  }
}

// "4" or "4-7".
std::set<uint32_t> parse_warps(std::string_view text) {
  uint32_t first = 0, last = 0;
  const char* const end = text.data() + text.size();
  const char* at = std::from_chars(text.data(), end, first).ptr;
  last = first;
  if (at != end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
  if (text.empty() || at != end || last < first || last > 31) {
    throw std::invalid_argument("--warps " + std::string(text) +
                                "; accepted: 0 to 31, as 4 or 4-7");
  }
  std::set<uint32_t> warps;
  for (uint32_t warp = first; warp <= last; ++warp) warps.insert(warp);
  return warps;
}

// Takes our options out of the arguments; the rest is Google Benchmark's.
KernelFiles take_files(std::vector<char*>& arguments) {
  KernelFiles files;
  for (size_t i = 1; i < arguments.size();) {
    const std::string_view name = arguments[i];
    if (name != "--ptx" && name != "--launch" && name != "--warps") {
      ++i;
      continue;
    }
    if (i + 1 == arguments.size())
      throw std::invalid_argument(std::string(name) + " takes a value");
    if (name == "--ptx") files.ptx = arguments[i + 1];
    if (name == "--launch") files.launch = arguments[i + 1];
    if (name == "--warps") files.warps = parse_warps(arguments[i + 1]);
    arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(i),
                    arguments.begin() + static_cast<ptrdiff_t>(i) + 2);
  }
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<char*> arguments(argv, argv + argc);
    const KernelFiles files = take_files(arguments);
    int count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
    if (files.launch.empty()) {
      register_statements();
    } else {
      benchmark::ClearRegisteredBenchmarks();
      register_kernel(files);
    }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_emulator: %s\n", error.what());
    return 2;
  }
}
