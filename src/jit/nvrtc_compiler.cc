#include "jit/nvrtc_compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>

namespace fa4::internal {
namespace {

// Owns one nvrtcProgram.
class Program {
 public:
  Program(const NvrtcLibrary& library, const std::string& text,
          std::span<const EmbeddedFile> sources)
      : api_(library.api) {
    std::vector<const char*> texts, names;
    for (const EmbeddedFile& file : sources) {
      texts.push_back(file.text);
      names.push_back(file.name);
    }
    check(api_.create_program(&program_, text.c_str(), "fa4_kernel.cu",
                              static_cast<int>(texts.size()), texts.data(), names.data()),
          "nvrtcCreateProgram");
  }
  ~Program() { api_.destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  NvrtcApi::Program get() const { return program_; }

  void check(NvrtcApi::Result result, const char* what) const {
    if (result == 0) return;
    throw Error(ErrorCode::kCompiler, fmt::format("{}: {}", what, api_.error_string(result)));
  }

  std::string log() const {
    size_t bytes = 0;
    if (api_.log_size(program_, &bytes) != 0 || bytes <= 1) return {};
    std::string text(bytes, '\0');
    api_.log(program_, text.data());
    text.resize(std::strlen(text.c_str()));
    return text;
  }

  std::vector<unsigned char> output(KernelImage::Kind kind) const {
    const bool cubin = kind == KernelImage::Kind::kCubin;
    size_t bytes = 0;
    check(cubin ? api_.cubin_size(program_, &bytes) : api_.ptx_size(program_, &bytes),
          cubin ? "nvrtcGetCUBINSize" : "nvrtcGetPTXSize");
    std::vector<unsigned char> image(bytes);
    char* data = reinterpret_cast<char*>(image.data());
    check(cubin ? api_.cubin(program_, data) : api_.ptx(program_, data),
          cubin ? "nvrtcGetCUBIN" : "nvrtcGetPTX");
    return image;
  }

 private:
  const NvrtcApi& api_;
  NvrtcApi::Program program_ = nullptr;
};

// "sm_90a" -> 90; 0 when it has no such form.
int architecture_number(const std::string& architecture) {
  if (!architecture.starts_with("sm_")) return 0;
  int number = 0;
  const char* end = architecture.data() + architecture.size();
  const auto [rest, error] = std::from_chars(architecture.data() + 3, end, number);
  const bool suffix_ok = rest == end || (rest + 1 == end && (*rest == 'a' || *rest == 'f'));
  return error == std::errc() && suffix_ok ? number : 0;
}

// The first line of `log` that says error, else its first line.
std::string first_error(const std::string& log) {
  size_t at = log.find("error");
  if (at == std::string::npos) at = 0;
  const size_t begin = at == 0 ? 0 : log.rfind('\n', at) + 1;
  return log.substr(begin, log.find('\n', at) - begin);
}

}  // namespace

const NvrtcCompiler& NvrtcCompiler::get() {
  // Outlives every static object that may use it.
  static const NvrtcCompiler* const kCompiler =
      new NvrtcCompiler(open_nvrtc(nvrtc_candidates()), embedded_sources());
  return *kCompiler;
}

bool NvrtcCompiler::available() {
  try {
    get();
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string NvrtcCompiler::version() const {
  return fmt::format("NVRTC {}.{}", library_.major, library_.minor);
}

std::vector<int> NvrtcCompiler::architectures() const {
  int count = 0;
  if (library_.api.num_supported_archs(&count) != 0) return {};
  std::vector<int> numbers(static_cast<size_t>(count));
  if (library_.api.supported_archs(numbers.data()) != 0) return {};
  return numbers;
}

std::vector<std::string> NvrtcCompiler::flags() {
  return {"--std=c++20", "-default-device", "-fmad=false", "--ptxas-options=-v"};
}

KernelImage NvrtcCompiler::compile(const KernelSource& source, const std::string& architecture,
                                   KernelImage::Kind kind,
                                   const std::vector<std::string>& more_flags) const {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int> known = architectures();
  if (std::find(known.begin(), known.end(), architecture_number(architecture)) == known.end()) {
    throw Error(ErrorCode::kCompiler,
                fmt::format("{} does not compile for {}; it does for sm_{}", version(),
                            architecture, fmt::join(known, ", sm_")));
  }
  const std::string text = fmt::format("#include \"kernels/{}\"\n", source.main_file);
  const Program program(library_, text, sources_);
  program.check(library_.api.add_name_expression(program.get(), source.name_expression.c_str()),
                "nvrtcAddNameExpression");

  std::vector<std::string> options = flags();
  options.insert(options.end(), more_flags.begin(), more_flags.end());
  const bool cubin = kind == KernelImage::Kind::kCubin;
  options.push_back("--gpu-architecture=" +
                    (cubin ? architecture : "compute_" + architecture.substr(3)));
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  const NvrtcApi::Result result = library_.api.compile_program(
      program.get(), static_cast<int>(pointers.size()), pointers.data());

  KernelImage image;
  image.log = program.log();
  if (result != 0) {
    throw CompileError(
        fmt::format("{} refused {} for {} ({}): {}", version(), source.display_name, architecture,
                    library_.api.error_string(result), first_error(image.log)),
        image.log);
  }
  const char* entry = nullptr;
  program.check(library_.api.lowered_name(program.get(), source.name_expression.c_str(), &entry),
                "nvrtcGetLoweredName");
  image.kind = kind;
  image.entry = entry;
  image.bytes = program.output(kind);
  image.display_name = source.display_name;
  image.architecture = architecture;
  image.compiler = version();
  image.resources = parse_ptxas_log(image.log);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  image.compile_seconds =
      elapsed.count() + (open_time_counted_.exchange(true) ? 0.0 : library_.open_seconds);
  return image;
}

}  // namespace fa4::internal
