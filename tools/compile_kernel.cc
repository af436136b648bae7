// Compiles one kernel and prints what the compiler said: for those who write kernels.
//
//   fa4_compile_kernel FILE EXPRESSION [--arch sm_90a] [--ptx] [--lines] [--out FILE] [--root SRC]
// FILE is below src/kernels ("sm90/forward/kernel.cuh"). --lines adds to PTX which line and
// function of the source each statement comes from, and changes nothing else. --root reads the
// sources from a checkout's src/ now instead of those embedded at build time.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>

#include "jit/nvrtc_compiler.h"

using namespace fa4::internal;

namespace {

struct SourceFolder {
  std::list<std::string> strings;  // stable addresses
  std::vector<EmbeddedFile> files;

  void read(const std::filesystem::path& root) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "kernels")) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cuh") continue;
      std::ifstream stream(entry.path(), std::ios::binary);
      const std::string& name = strings.emplace_back(entry.path().lexically_relative(root));
      const std::string& text = strings.emplace_back(std::istreambuf_iterator<char>(stream),
                                                     std::istreambuf_iterator<char>());
      files.push_back({name.c_str(), text.c_str(), text.size()});
    }
  }
};

int compile(const std::vector<std::string>& arguments) {
  KernelSource source;
  std::string architecture = "sm_90a", out, root;
  std::vector<std::string> more_flags;
  auto kind = KernelImage::Kind::kCubin;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size();
    if (arguments[i] == "--ptx") {
      kind = KernelImage::Kind::kPtx;
    } else if (arguments[i] == "--lines") {
      more_flags = {"--generate-line-info"};
    } else if (arguments[i] == "--arch" && has_value) {
      architecture = arguments[++i];
    } else if (arguments[i] == "--out" && has_value) {
      out = arguments[++i];
    } else if (arguments[i] == "--root" && has_value) {
      root = arguments[++i];
    } else if (source.main_file.empty()) {
      source.main_file = arguments[i];
    } else {
      source.name_expression = source.display_name = arguments[i];
    }
  }
  if (source.name_expression.empty()) {
    fmt::print(stderr, "fa4_compile_kernel: FILE and EXPRESSION are needed\n");
    return 2;
  }
  SourceFolder folder;
  if (!root.empty()) folder.read(root);
  const NvrtcCompiler compiler(
      open_nvrtc(nvrtc_candidates()),
      root.empty() ? embedded_sources() : std::span<const EmbeddedFile>(folder.files));
  const KernelImage image = compiler.compile(source, architecture, kind, more_flags);
  fmt::print(
      "{}{}\n{}: {:.3f} s, {} registers, {} spill bytes, {} stack bytes, {} static smem bytes, "
      "{} bytes\n",
      image.log, image.entry, image.compiler, image.compile_seconds, image.resources.registers,
      image.resources.spill_bytes, image.resources.stack_bytes, image.resources.static_smem_bytes,
      image.bytes.size());
  if (!out.empty()) {
    // Of PTX without the byte 0 that ends it in memory: ptxas takes it for a cut file.
    const size_t size = image.bytes.size() - (kind == KernelImage::Kind::kPtx ? 1 : 0);
    std::ofstream(out, std::ios::binary)
        .write(reinterpret_cast<const char*>(image.bytes.data()),
               static_cast<std::streamsize>(size));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return compile({argv + 1, argv + argc});
  } catch (const CompileError& error) {
    fmt::print(stderr, "{}fa4_compile_kernel: {}\n", error.log(), error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "fa4_compile_kernel: {}\n", error.what());
  }
  return 3;
}
