// What the compiler makes of the kernels' sources.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "jit/nvrtc_compiler.h"
#include "plan/forward_plan.h"
#include "plan/kernel_spec.h"

namespace fa4::internal {
namespace {

// NVRTC as it is, and with the option to fuse what the sources do not.
NvrtcApi::Result (*compile_as_asked)(NvrtcApi::Program, int, const char* const*) = nullptr;

NvrtcApi::Result compile_fusing(NvrtcApi::Program program, int count, const char* const* options) {
  std::vector<const char*> others;
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(options[i], "-fmad=false") != 0) others.push_back(options[i]);
  }
  EXPECT_LT(static_cast<int>(others.size()), count);
  return compile_as_asked(program, static_cast<int>(others.size()), others.data());
}

NvrtcLibrary fusing_library() {
  NvrtcLibrary library = open_nvrtc(nvrtc_candidates());
  compile_as_asked = library.api.compile_program;
  library.api.compile_program = compile_fusing;
  return library;
}

template <class T>
T read(const std::vector<unsigned char>& bytes, size_t offset) {
  T value;
  EXPECT_LE(offset + sizeof value, bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Instructions FFMA in a cubin's code: 16 bytes each, the low 9 bits are the operation.
int count_ffma(const KernelImage& image) {
  constexpr size_t kSectionBytes = 64, kInstructionBytes = 16;
  constexpr uint32_t kCode = 1, kExecutable = 4;  // SHT_PROGBITS, SHF_EXECINSTR
  constexpr uint16_t kFfma = 0x23;
  const std::vector<unsigned char> bytes(image.bytes.begin(), image.bytes.end());
  const auto sections = read<uint64_t>(bytes, 0x28);
  int found = 0;
  for (int i = 0; i < read<uint16_t>(bytes, 0x3c); ++i) {
    const size_t section = sections + static_cast<size_t>(i) * kSectionBytes;
    const bool is_code = read<uint32_t>(bytes, section + 4) == kCode &&
                         (read<uint64_t>(bytes, section + 8) & kExecutable) != 0;
    const auto begin = read<uint64_t>(bytes, section + 24);
    const auto size = is_code ? read<uint64_t>(bytes, section + 32) : 0;
    for (uint64_t at = begin; at < begin + size; at += kInstructionBytes) {
      found += (read<uint16_t>(bytes, at) & 0x1ff) == kFfma;
    }
  }
  return found;
}

std::vector<KernelSource> kernels_named(const std::string& architecture,
                                        const std::vector<std::string>& names) {
  std::vector<KernelSource> found;
  for (const PrebuiltKernel& kernel : prebuilt_kernels(architecture)) {
    if (std::count(names.begin(), names.end(), kernel.source.display_name) > 0) {
      found.push_back(kernel.source);
    }
  }
  EXPECT_EQ(found.size(), names.size());
  return found;
}

class DeviceCode : public testing::Test {
 protected:
  void SetUp() override {
    if (!NvrtcCompiler::available()) GTEST_SKIP() << "NVRTC is not on this machine";
  }
  static std::string ptx_of(const KernelSource& source, const std::string& architecture) {
    const KernelImage image =
        NvrtcCompiler::get().compile(source, architecture, KernelImage::Kind::kPtx);
    return {image.bytes.begin(), image.bytes.end()};
  }
};

// The emulator computes what the PTX says: a product and a sum that only ptxas makes one would be
// two roundings there.
TEST_F(DeviceCode, EveryFmaIsWritten) {
  const NvrtcCompiler fusing(fusing_library(), embedded_sources());
  const struct {
    const char* architecture;
    std::vector<std::string> names;
  } kernels[] = {{"sm_90a",
                  {"fwd_sm90_bf16_d64_m192n128", "fwd_sm90_bf16_d128_m128n160",
                   "fwd_sm90_f16_d128_m128n128_softcap"}},
                 {"sm_100a",
                  {"fwd_sm100_bf16_d64_q1_poly20", "fwd_sm100_bf16_d128_q2_pair_poly20",
                   "fwd_sm100_f16_d128_q2_poly20_softcap"}}};
  for (const auto& [architecture, names] : kernels) {
    for (const KernelSource& source : kernels_named(architecture, names)) {
      const int written = count_ffma(NvrtcCompiler::get().compile(source, architecture));
      EXPECT_GT(written, 20) << source.display_name;
      EXPECT_EQ(written, count_ffma(fusing.compile(source, architecture))) << source.display_name;
    }
  }
}

// "The issuing warp must make sure that the peer CTA is launched" (PTX ISA, tcgen05.alloc).
TEST_F(DeviceCode, APairAllocatesTensorMemoryWhenBothCtasRun) {
  const std::vector<KernelSource> pair =
      kernels_named("sm_100a", {"fwd_sm100_bf16_d128_q2_pair_poly20"});
  const std::string text = ptx_of(pair.at(0), "sm_100a");
  const size_t arrive = text.find("barrier.cluster.arrive"),
               wait = text.find("barrier.cluster.wait"),
               allocate = text.find("tcgen05.alloc.cta_group::2");
  ASSERT_NE(allocate, std::string::npos);
  EXPECT_LT(arrive, wait);
  EXPECT_LT(wait, allocate);
}

// Those of pages of any size, whose rows threads copy or TMA gathers, which are compiled on first
// use: the build sees that the prebuilt ones spill nothing.
TEST_F(DeviceCode, RowsOfPagesSpillNoRegister) {
  const struct {
    int64_t seqlen_q, head_dim, head_dim_v;
    DType kv_dtype;
  } shapes[] = {{1, 64, 64, DType::kE4M3},     {1, 128, 128, DType::kE4M3},
                {1, 192, 128, DType::kE4M3},   {1, 128, 128, DType::kBF16},
                {512, 128, 128, DType::kE4M3}, {512, 192, 128, DType::kE4M3},
                {512, 256, 256, DType::kE4M3}, {512, 64, 64, DType::kBF16},
                {512, 192, 128, DType::kBF16}, {512, 256, 256, DType::kBF16}};
  const auto check = [&](const DeviceSpec& device, const char* pages, int64_t between_pages) {
    for (const auto& [seqlen_q, head_dim, head_dim_v, kv_dtype] : shapes) {
      const bool is_quantised = kv_dtype == DType::kE4M3;
      if (between_pages > 0 && is_quantised) continue;
      ProblemDesc d;
      d.batch = 8;
      d.heads_q = 16;
      d.heads_kv = 2;
      d.seqlen_q = seqlen_q;
      d.seqlen_k = d.num_pages = d.pages_per_seq = 1024;
      d.head_dim = head_dim;
      d.head_dim_v = head_dim_v;
      d.kv_dtype = kv_dtype;
      d.causal = d.has_seqused_k = true;
      d.layout_kv = Layout::kPaged;
      d.page_size = 1;
      d.k = {2 * head_dim + between_pages, 2 * head_dim, head_dim};
      d.v = {2 * head_dim_v + between_pages, 2 * head_dim_v, head_dim_v};
      const ForwardPlan plan = plan_forward(AttentionProblem::make(d), device);
      const KernelSource& source = plan.steps.at(0).source;
      const char* expected = is_quantised ? "page_rows" : pages;
      EXPECT_NE(source.display_name.find(expected), std::string::npos) << source.display_name;
      const KernelImage image = NvrtcCompiler::get().compile(source, device.architecture);
      EXPECT_EQ(image.resources.spill_bytes, 0) << source.display_name;
    }
  };
  for (const DeviceSpec& device : emulated_specs()) {
    const bool gathers = device.architecture == "sm_100a";
    check(device, gathers ? "page_gathers" : "page_rows", 0);
    if (gathers) check(device, "page_rows", 8);
  }
}

// bench/hopper_rates.py compiles it with these macros, on a Hopper GPU only.
TEST_F(DeviceCode, TheRatesOfHopperAreMeasuredByCodeThatCompiles) {
  std::ifstream file(FA4_HOPPER_RATES);
  ASSERT_TRUE(file) << FA4_HOPPER_RATES;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::span<const EmbeddedFile> embedded = embedded_sources();
  std::vector<EmbeddedFile> sources(embedded.begin(), embedded.end());
  sources.push_back({"kernels/hopper_rates.cu", text.c_str(), text.size()});
  const NvrtcCompiler compiler(open_nvrtc(nvrtc_candidates()), sources);
  const struct {
    std::string kernel;
    std::vector<std::string> macros;
  } variants[] = {
      {"products", {"PRODUCTS", "COLUMNS=80", "A_IN_REGISTERS=0", "WARPGROUPS=3", "TRAFFIC=0"}},
      {"products", {"PRODUCTS", "COLUMNS=64", "A_IN_REGISTERS=0", "WARPGROUPS=2", "TRAFFIC=1"}},
      {"products", {"PRODUCTS", "COLUMNS=128", "A_IN_REGISTERS=1", "WARPGROUPS=3", "TRAFFIC=2"}},
      {"loads", {"LOADS=16", "DIVISOR=4", "PLACES=8"}},
      {"loads", {"LOADS=8", "DIVISOR=1", "PLACES=4"}},
      {"loads", {"LOADS=4", "DIVISOR=1", "PLACES=32"}},
      {"exchange", {"EXCHANGE", "HOW=0", "BYTES=2048", "STAGES=1", "ONE_WAY=0"}},
      {"exchange", {"EXCHANGE", "HOW=1", "BYTES=8192", "STAGES=2", "ONE_WAY=1"}},
      {"exchange", {"EXCHANGE", "HOW=2", "BYTES=8192", "STAGES=4", "ONE_WAY=0"}}};
  for (const auto& [kernel, macros] : variants) {
    std::vector<std::string> flags;
    for (const std::string& macro : macros) flags.push_back("-D" + macro);
    const KernelImage image = compiler.compile({"hopper_rates.cu", kernel, kernel}, "sm_90a",
                                               KernelImage::Kind::kCubin, flags);
    EXPECT_EQ(image.resources.spill_bytes, 0) << kernel;
  }
}

}  // namespace
}  // namespace fa4::internal
