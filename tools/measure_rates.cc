// Measures on a Blackwell what tools/pipe_budget/rates.py assumes: clocks of a warp instruction and
// of a dependent one, for each unit. Prints JSON.
//
//   fa4_measure_rates [--device cuda:0] [--write DIR]
// --write keeps the programs, for a look at what ptxas makes of them. On an emulated device they
// run, but what they return is no time ("emulated": true).
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/device.h"

using namespace fa4::internal;

namespace {

constexpr int kChains = 8;          // independent ones: as many as hide a latency
constexpr int kUnrolled = 16;       // statements of a chain in the loop
constexpr int kIterations = 32;     // of the loop
constexpr uint32_t kThreads = 128;  // a warp for each scheduler

// `statement`: @ is the chain's own register number, ^ another chain's, $N the registers v0 to
// v(N - 1), which are 0. Others: f (float), r (32 bits), d (two floats), %fa, %ra, %da that the
// compiler does not know.
struct Measured {
  const char* name;       // a unit of rates.py, and which instruction
  const char* statement;  // one warp instruction
  int columns = 0;        // of tensor memory
};

#define LOADED "tcgen05.wait::ld.sync.aligned; add.u32 %taddr, %taddr, %v0;"
#define STORED "tcgen05.wait::st.sync.aligned;"

const Measured kMeasured[] = {
    {"mufu ex2", "ex2.approx.ftz.f32 %f@, %f@;"},
    {"fma", "fma.rn.f32 %f@, %f@, %fa, %fa;"},
    {"fma f32x2", "fma.rn.f32x2 %d@, %d@, %da, %da;"},
    {"fma add f32x2", "add.rn.f32x2 %d@, %d@, %da;"},
    {"fma mad", "mad.lo.u32 %r@, %r@, %ra, %ra;"},
    {"alu lop3", "lop3.b32 %r@, %r@, %ra, %r^, 0x96;"},
    {"alu max", "max.f32 %f@, %f@, %f^;"},
    {"alu max3", "max.f32 %f@, %f@, %f^, %fa;"},
    {"convert", "cvt.rn.bf16x2.f32 %r@, %f@, %f^; mov.b32 %f@, %r@;"},
    {"shared load", "ld.shared.u32 %r@, [%r@];"},
    // The address hangs on what was loaded, which is 0: one after another, in any case.
    {"tensor_memory load x2", "tcgen05.ld.sync.aligned.32x32b.x2.b32 {$2}, [%taddr]; " LOADED, 2},
    {"tensor_memory load x32", "tcgen05.ld.sync.aligned.32x32b.x32.b32 {$32}, [%taddr]; " LOADED,
     32},
    {"tensor_memory store x2", "tcgen05.st.sync.aligned.32x32b.x2.b32 [%taddr], {$2}; " STORED, 2},
    {"tensor_memory store x32", "tcgen05.st.sync.aligned.32x32b.x32.b32 [%taddr], {$32}; " STORED,
     32},
};

std::string statement_of(const Measured& row, int chain, int chains) {
  std::string text;
  for (const char* c = row.statement; *c != '\0'; ++c) {
    if (*c == '@') {
      text += std::to_string(chain);
    } else if (*c == '^') {
      text += std::to_string((chain + 1) % chains);
    } else if (*c == '$') {
      while (c[1] >= '0' && c[1] <= '9') ++c;
      for (int i = 0; i < row.columns; ++i) text += fmt::format("{}%v{}", i == 0 ? "" : ", ", i);
    } else {
      text += *c;
    }
  }
  return text;
}

std::string body_of(const Measured& row, int chains) {
  std::string body;
  for (int i = 0; i < kUnrolled; ++i) {
    for (int chain = 0; chain < chains; ++chain) {
      body += "  " + statement_of(row, chain, chains) + "\n";
    }
  }
  return body;
}

std::string registers_of(int chains) {
  std::string text;
  for (int i = 0; i < chains; ++i) {
    text += fmt::format(
        "  cvt.rn.f32.u32 %f{0}, %thread;\n  mov.u32 %r{0}, %smem;\n"
        "  mov.b64 %d{0}, {{%f{0}, %f{0}}};\n",
        i);
  }
  return text;
}

// Each warp's clocks go to out[warp]; a sum that nobody can foresee keeps the work alive.
std::string program_of(const Measured& row, int chains, const std::string& architecture) {
  std::string text = fmt::format(
      ".version 8.8\n.target {0}\n.address_size 64\n.visible .entry measure(.param .u64 p)\n{{\n"
      "  .reg .pred %p<3>;\n  .reg .b32 %r<{1}>, %v<32>, %zero, %thread, %ra, %smem, %taddr, %i, "
      "%warp, "
      "%sum;\n"
      "  .reg .f32 %f<{1}>, %fa;\n  .reg .b64 %d<{1}>, %da, %out, %t0, %t1, %at;\n"
      "  .shared .align 16 .b32 words[4];\n",
      architecture, kChains);
  text +=
      "  ld.param.u64 %out, [p];\n  mov.u32 %smem, words;\n  st.shared.u32 [words], %smem;\n"
      "  mov.u32 %thread, %tid.x;\n  mov.u32 %ra, %ntid.x;\n  cvt.rn.f32.u32 %fa, %ra;\n  mov.b64 "
      "%da, {%fa, %fa};\n"
      "  shr.u32 %warp, %thread, 5;\n  setp.eq.u32 %p1, %warp, 0;\n";
  if (row.columns != 0) {
    text +=
        "  @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [words+4], 32;\n"
        "  bar.sync 0;\n  ld.shared.u32 %taddr, [words+4];\n"
        "  shl.b32 %i, %warp, 21;\n  add.u32 %taddr, %taddr, %i;\n"
        "  shr.u32 %zero, %ra, 20;\n";
    for (int i = 0; i < 32; ++i) text += fmt::format("  mov.u32 %v{}, %zero;\n", i);
    text += "  " +
            statement_of(
                {"", "tcgen05.st.sync.aligned.32x32b.x32.b32 [%taddr], {$32}; " STORED, 32}, 0, 1) +
            "\n";
  }
  text += "  bar.sync 0;\n" + registers_of(chains);
  text += "  mov.u32 %i, 0;\n  mov.u64 %t0, %clock64;\nagain:\n" + body_of(row, chains);
  text += fmt::format(
      "  add.u32 %i, %i, 1;\n  setp.lt.u32 %p0, %i, {};\n  @%p0 bra again;\n"
      "  mov.u64 %t1, %clock64;\n  sub.u64 %t1, %t1, %t0;\n  mov.u32 %sum, 0;\n",
      kIterations);
  if (row.columns != 0) text += "  xor.b32 %sum, %sum, %taddr;\n";
  for (int i = 0; i < chains; ++i) {
    text += fmt::format(
        "  xor.b32 %sum, %sum, %r{0};\n  mov.b32 %i, %f{0};\n  xor.b32 %sum, %sum, %i;\n"
        "  cvt.u32.u64 %i, %d{0};\n  xor.b32 %sum, %sum, %i;\n",
        i);
  }
  text +=
      "  setp.eq.u32 %p2, %sum, 0x1234567;\n  @%p2 add.u64 %t1, %t1, 1;\n"
      "  mad.wide.u32 %at, %warp, 8, %out;\n  st.global.u64 [%at], %t1;\n  bar.sync 0;\n";
  if (row.columns != 0) {
    text +=
        "  ld.shared.u32 %taddr, [words+4];\n"
        "  @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %taddr, 32;\n";
  }
  return text + "  ret;\n}\n";
}

// Clocks of one statement, the slowest warp's, of the second of two launches.
double measure(Device& device, const Measured& row, int chains, const std::string& folder) {
  KernelImage image;
  image.kind = KernelImage::Kind::kPtx;
  image.architecture = device.spec().architecture;
  image.entry = "measure";
  image.display_name = row.name;
  const std::string text = program_of(row, chains, image.architecture);
  if (!folder.empty()) {
    std::string file = fmt::format("{}/{} {}.ptx", folder, row.name, chains);
    std::replace(file.begin() + static_cast<ptrdiff_t>(folder.size()), file.end(), ' ', '_');
    if (!(std::ofstream(file) << text).flush()) {
      throw std::runtime_error(fmt::format("--write {}: {} cannot be written", folder, file));
    }
  }
  image.bytes.assign(text.begin(), text.end());
  if (device.image_kind() == KernelImage::Kind::kCubin) image.bytes.push_back(0);  // the driver's
  const std::unique_ptr<Kernel> kernel = device.load(image, 0);
  uint64_t clocks[kThreads / 32] = {};
  const Buffer out(device, sizeof clocks);
  const void* parameter = out.data();
  LaunchConfig config;
  config.block[0] = kThreads;
  void* const stream = device.create_stream();
  for (int i = 0; i < 2; ++i) kernel->launch(config, &parameter, sizeof parameter, stream);
  device.synchronize(stream);
  device.destroy_stream(stream);
  device.copy_to_host(clocks, out.data(), sizeof clocks);
  uint64_t most = 0;
  for (const uint64_t c : clocks) most = std::max(most, c);
  return static_cast<double>(most) / (kIterations * kUnrolled * chains);
}

int run(const std::string& name, const std::string& folder) {
  const std::shared_ptr<Device> device = Device::open(name);
  const std::string& architecture = device->spec().architecture;
  if (!architecture.starts_with("sm_10")) {
    fmt::print(stderr, "fa4_measure_rates: --device {} is {}; accepted: sm_100a, sm_103a\n", name,
               architecture);
    return 2;
  }
  fmt::print(
      "{{\"schema\": 1, \"device\": \"{}\", \"architecture\": \"{}\", \"emulated\": {},\n"
      " \"rows\": [",
      name, architecture, name.starts_with("emulated"));
  const char* separator = "\n";
  for (const Measured& row : kMeasured) {
    fmt::print("{}  {{\"name\": \"{}\", \"clocks\": {:.3f}, \"dependent\": {:.3f}}}", separator,
               row.name, measure(*device, row, kChains, folder), measure(*device, row, 1, folder));
    separator = ",\n";
  }
  fmt::print("\n ]}}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string device = "cuda:0", folder;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if ((option != "--device" && option != "--write") || i + 1 == argc) {
      fmt::print(stderr, "fa4_measure_rates {}; accepted: --device NAME, --write DIR\n", option);
      return 2;
    }
    (option == "--device" ? device : folder) = argv[i + 1];
  }
  try {
    return run(device, folder);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fa4_measure_rates: {}\n", error.what());
    return 3;
  }
}
