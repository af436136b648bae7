// Build step: compiles every kernel that plan names for the given architectures and writes what the
// library embeds.
//
//   fa4_prebuild --nvrtc LIBNVRTC --out FOLDER --archs sm_90a[,sm_100a]
// writes FOLDER/images.S (the images) and FOLDER/images.cc (prebuilt_images()). An image whose
// content key is already in FOLDER is not compiled again. Fails when a kernel spills registers or
// ptxas serialises its wgmma: both cost more than a build that says so.
#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "jit/disk_cache.h"
#include "jit/hash.h"
#include "jit/nvrtc_compiler.h"
#include "plan/kernel_spec.h"

using namespace fa4::internal;

namespace {

constexpr int kThreads = 2;

struct Job {
  KernelSource source;
  std::string architecture, key;
  KernelImage image;
  std::string problem;  // empty: done
  std::string log;      // of a kernel that was refused
  bool compiled = false;
};

std::vector<Job> make_jobs(const NvrtcCompiler& compiler, const std::string& architectures) {
  FieldHasher common;
  common.add(hash_of(embedded_sources())).add(compiler.version());
  for (const std::string& flag : NvrtcCompiler::flags()) common.add(flag);
  std::vector<Job> jobs;
  std::istringstream list(architectures);
  for (std::string architecture; std::getline(list, architecture, ',');) {
    for (const PrebuiltKernel& kernel : prebuilt_kernels(architecture)) {
      const KernelSource& source = kernel.source;
      FieldHasher key = common;
      key.add(source.main_file).add(source.name_expression).add(source.display_name);
      jobs.push_back({source, architecture, key.add(architecture).hex(), {}, {}, {}, false});
    }
  }
  return jobs;
}

void run(const NvrtcCompiler& compiler, const DiskCache& before, Job& job) try {
  if (auto image = before.load(job.key)) {
    job.image = std::move(*image);
    return;
  }
  job.image = compiler.compile(job.source, job.architecture);
  job.compiled = true;
  if (job.image.resources.spill_bytes != 0) {
    job.problem = fmt::format("spills {} bytes of registers", job.image.resources.spill_bytes);
  } else if (job.image.log.find("instructions are serialized") != std::string::npos) {
    job.problem = "ptxas serialises its wgmma instructions";
  } else if (!before.store(job.key, job.image)) {
    job.problem = "cannot write to " + before.folder();
  }
} catch (const CompileError& error) {
  job.problem = error.what();
  job.log = error.log();
} catch (const std::exception& error) {
  job.problem = error.what();
}

void run_all(const NvrtcCompiler& compiler, const DiskCache& before, std::vector<Job>& jobs) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) run(compiler, before, jobs[i]);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < kThreads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!stream.flush()) throw std::runtime_error(fmt::format("cannot write {}", path.string()));
}

// `text` with `from` once replaced; nullopt: it is not there.
std::optional<std::string> replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) return std::nullopt;
  return text.replace(at, from.size(), to);
}

// An image that an earlier job made of nearly the same kernel: for bf16, for another architecture,
// for keys that no pages hold.
std::optional<size_t> twin_of(const std::vector<Job>& jobs, size_t i) {
  const Job& job = jobs[i];
  const std::string& name = job.source.name_expression;
  const auto earlier = [&](const std::optional<std::string>& of, bool same_architecture) {
    const auto is_twin = [&](const Job& other) {
      return other.source.main_file == job.source.main_file && other.source.name_expression == of &&
             (other.architecture == job.architecture) == same_architecture;
    };
    const auto end = jobs.begin() + static_cast<ptrdiff_t>(i);
    const auto found = std::find_if(jobs.begin(), end, is_twin);
    return found == end ? std::nullopt : std::optional<size_t>(found - jobs.begin());
  };
  if (const auto bf16 = replaced(name, "Element::kF16", "Element::kBF16")) {
    return earlier(bf16, true);
  }
  if (const auto found = earlier(name, false)) return found;
  for (const char* pages : {"Pages::kBoxes", "Pages::kGroups"}) {
    if (const auto contiguous = replaced(name, pages, "Pages::kNone")) {
      return earlier(contiguous, true);
    }
  }
  return std::nullopt;
}

// The image that each is written as what differs from; its own index: it stands alone. A twin
// leaves a fifth of the bytes or less. The others of a kernel file and architecture are written
// behind the largest of them, in half of the bytes.
std::vector<size_t> bases_of(const std::vector<Job>& jobs) {
  std::map<std::pair<std::string, std::string>, size_t> largest;  // of those without a twin
  const auto group = [](const Job& job) {
    return std::pair(job.architecture, job.source.main_file);
  };
  std::vector<std::optional<size_t>> twins;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (twins.emplace_back(twin_of(jobs, i))) continue;
    size_t& base = largest.try_emplace(group(jobs[i]), i).first->second;
    if (jobs[i].image.bytes.size() > jobs[base].image.bytes.size()) base = i;
  }
  std::vector<size_t> bases;
  for (size_t i = 0; i < jobs.size(); ++i) {
    bases.push_back(twins[i] ? *twins[i] : largest.at(group(jobs[i])));
  }
  return bases;
}

// `bytes` as a zstd frame behind `prefix`. Level 19 would save 1 % more and take thrice as long.
std::string compress(const std::vector<unsigned char>& bytes,
                     const std::vector<unsigned char>& prefix) {
  constexpr int kLevel = 15;
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     &ZSTD_freeCCtx);
  if (!context) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_refPrefix(context.get(), prefix.data(), prefix.size());
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  const size_t written =
      ZSTD_compress2(context.get(), frame.data(), frame.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(written)) throw std::runtime_error(ZSTD_getErrorName(written));
  frame.resize(written);
  return frame;
}

std::string frame_name(const Job& job) {
  return fmt::format("{}.{}.cubin.zst", job.source.display_name, job.architecture);
}

void write_images(const std::filesystem::path& out, const std::vector<Job>& jobs) {
  std::string assembler = ".section .note.GNU-stack,\"\",%progbits\n.section .rodata\n";
  std::string symbols, rows;
  const std::vector<size_t> bases = bases_of(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    const KernelImage& image = job.image;
    const std::filesystem::path file = out / frame_name(job);
    const bool alone = bases[i] == i;
    const std::string frame =
        compress(image.bytes, alone ? decltype(image.bytes){} : jobs[bases[i]].image.bytes);
    write(file, frame);
    assembler += fmt::format(
        ".global fa4_image_{0}\n.hidden fa4_image_{0}\n.balign 16\nfa4_image_{0}:\n.incbin "
        "\"{1}\"\n",
        i, file.string());
    symbols += fmt::format("extern const unsigned char fa4_image_{}[];\n", i);
    const KernelResources& r = image.resources;
    rows += fmt::format(
        "      {{\"{}\", R\"x({})x\", \"{}\", \"{}\", \"{}\", \"{}\",\n       fa4_image_{}, {}, "
        "{}, {{{}, {}, {}, {}}}, {}}},\n",
        job.source.main_file, job.source.name_expression, job.source.display_name, job.architecture,
        image.compiler, image.entry, i, frame.size(), image.bytes.size(), r.registers,
        r.spill_bytes, r.stack_bytes, r.static_smem_bytes,
        alone ? "nullptr" : fmt::format("&kImages[{}]", bases[i]));
  }
  write(out / "images.S", assembler);
  const std::string body = jobs.empty()
                               ? std::string("  return {};\n")
                               : fmt::format(
                                     "  static const PrebuiltImage kImages[] = {{\n{}  }};\n"
                                     "  return kImages;\n",
                                     rows);
  write(out / "images.cc",
        fmt::format("// Made by fa4_prebuild.\n#include \"jit/prebuilt_images.h\"\n\n"
                    "extern \"C\" {{\n{}}}\n\nnamespace fa4::internal {{\n\n"
                    "std::span<const PrebuiltImage> prebuilt_images() {{\n{}}}\n\n}}  // namespace "
                    "fa4::internal\n",
                    symbols, body));
}

// What earlier sources left behind.
void remove_stale(const std::filesystem::path& out, const std::vector<Job>& jobs) {
  std::set<std::string> wanted;
  for (const Job& job : jobs) {
    wanted.insert(frame_name(job));
    wanted.insert(job.key + ".fa4image");
  }
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(out)) {
    const std::string extension = entry.path().extension().string();
    const bool ours = extension == ".cubin" || extension == ".fa4image";
    if (ours && !wanted.contains(entry.path().filename().string())) stale.push_back(entry.path());
  }
  for (const auto& path : stale) std::filesystem::remove(path);
}

// One line a kernel, and the compiler's log of the first that it refused.
bool report_problems(const std::vector<Job>& jobs) {
  std::string log;
  bool any = false;
  for (const Job& job : jobs) {
    if (job.problem.empty()) continue;
    any = true;
    fmt::print(stderr, "fa4_prebuild: {} for {}: {}\n", job.source.display_name, job.architecture,
               job.problem);
    if (log.empty()) log = job.log;
  }
  fmt::print(stderr, "{}", log);
  return any;
}

int prebuild(const std::string& nvrtc, const std::filesystem::path& out,
             const std::string& architectures) {
  const auto start = std::chrono::steady_clock::now();
  std::filesystem::create_directories(out);
  const NvrtcCompiler compiler(open_nvrtc({nvrtc}), embedded_sources());
  const DiskCache before(out.string());
  std::vector<Job> jobs = make_jobs(compiler, architectures);
  run_all(compiler, before, jobs);
  if (report_problems(jobs)) return 1;
  write_images(out, jobs);
  remove_stale(out, jobs);
  const auto compiled =
      std::count_if(jobs.begin(), jobs.end(), [](const Job& j) { return j.compiled; });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  fmt::print("fa4_prebuild: {} kernels for {}, {} compiled in {:.1f} s\n", jobs.size(),
             architectures, compiled, elapsed.count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string nvrtc, out, architectures;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--nvrtc") nvrtc = argv[i + 1];
    if (option == "--out") out = argv[i + 1];
    if (option == "--archs") architectures = argv[i + 1];
  }
  if (nvrtc.empty() || out.empty() || architectures.empty()) {
    fmt::print(stderr, "fa4_prebuild: --nvrtc, --out and --archs are needed\n");
    return 2;
  }
  try {
    return prebuild(nvrtc, out, architectures);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fa4_prebuild: {}\n", error.what());
    return 3;
  }
}
