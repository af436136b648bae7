// fa4 compile: the prebuilt kernels through NVRTC, past every cache.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>

#include "commands.h"
#include "io/output_files.h"
#include "jit/nvrtc_compiler.h"
#include "plan/kernel_spec.h"
#include "progress.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

class CompileCommand final : public Command {
 public:
  const char* name() const override { return "compile"; }
  const char* description() const override {
    return "Compile the prebuilt GPU kernels, caches off";
  }

  void declare(Options& app) override {
    app.add_option("--arch", architecture_,
                   fmt::format("{}", fmt::join(prebuilt_architectures(), ", ")))
        ->type_name("ARCH");
    app.add_option("--kernel", kernel_, "Only this one")->type_name("NAME");
    app.add_option("--keep", keep_, "Write NAME.cubin here")->type_name("FOLDER");
    app.add_flag("--list", list_, "Print their names and compile nothing");
  }

  Outcome run() override {
    const std::vector<PrebuiltKernel> kernels = choose();
    if (keep_ && !std::filesystem::is_directory(*keep_)) {
      throw bad_input(fmt::format("--keep {}; accepted: a folder that is there", *keep_));
    }
    Outcome outcome;
    outcome.json["device"] = *architecture_;
    outcome.json["rows"] = Json::array();
    if (list_) {
      for (const PrebuiltKernel& kernel : kernels) {
        outcome.json["rows"].push_back({{"kernel", kernel.source.display_name}});
        outcome.text += kernel.source.display_name + "\n";
      }
      return outcome;
    }
    outcome.text = fmt::format("{:<40} {:>8} {:>9} {:>6} {:>7} {:>7}\n", "kernel", "seconds",
                               "registers", "spill", "smem", "cubin");
    const NvrtcCompiler& compiler = NvrtcCompiler::get();
    outcome.json["compiler"] = compiler.version();
    Progress progress("compile", static_cast<int64_t>(kernels.size()));
    int64_t done = 0;
    for (const PrebuiltKernel& kernel : kernels) {
      progress.step(done++);
      const KernelImage image = compiler.compile(kernel.source, *architecture_);
      add_row(kernel, image, outcome);
      if (keep_) outcome.files.push_back(written(image));
    }
    return outcome;
  }

 private:
  std::vector<PrebuiltKernel> choose() const {
    const std::string accepted = fmt::format("{}", fmt::join(prebuilt_architectures(), ", "));
    if (!architecture_) throw bad_input("--arch: is missing; accepted: " + accepted);
    const std::vector<PrebuiltKernel> kernels = prebuilt_kernels(*architecture_);
    if (kernels.empty()) {
      throw bad_input(fmt::format("--arch {}; accepted: {}", *architecture_, accepted));
    }
    if (!kernel_) return kernels;
    std::vector<std::string> names;
    for (const PrebuiltKernel& kernel : kernels) {
      if (kernel.source.display_name == *kernel_) return {kernel};
      names.push_back(kernel.source.display_name);
    }
    throw bad_input(fmt::format("--kernel {}; accepted: {}; --list prints all {}", *kernel_,
                                fmt::join(nearest(names), ", "), names.size()));
  }

  // The names that begin as the asked one does for longest, in their order: a few of hundreds.
  std::vector<std::string> nearest(std::vector<std::string> names) const {
    constexpr size_t kShown = 8;
    const auto in_common = [&](const std::string& name) {
      return std::mismatch(name.begin(), name.end(), kernel_->begin(), kernel_->end()).first -
             name.begin();
    };
    std::ranges::stable_sort(names, std::greater{}, in_common);
    names.resize(std::min(names.size(), kShown));
    return names;
  }

  void add_row(const PrebuiltKernel& kernel, const KernelImage& image, Outcome& outcome) const {
    const KernelResources& used = image.resources;
    const int smem_bytes = kernel.smem_bytes + used.static_smem_bytes;
    outcome.json["rows"].push_back({{"kernel", image.display_name},
                                    {"seconds", image.compile_seconds},
                                    {"registers", used.registers},
                                    {"spill_bytes", used.spill_bytes},
                                    {"smem_bytes", smem_bytes},
                                    {"cubin_bytes", image.bytes.size()}});
    outcome.text += fmt::format("{:<40} {:>8.3f} {:>9} {:>6} {:>7} {:>7}\n", image.display_name,
                                image.compile_seconds, used.registers, used.spill_bytes, smem_bytes,
                                image.bytes.size());
  }

  // The cubin, beside the place where it belongs.
  std::shared_ptr<OutputFiles> written(const KernelImage& image) const {
    auto outputs = std::make_shared<OutputFiles>();
    outputs->add_text("--keep", *keep_ + "/" + image.display_name + ".cubin");
    outputs->set_text("--keep", std::string(image.bytes.begin(), image.bytes.end()));
    outputs->write();
    return outputs;
  }

  std::optional<std::string> architecture_, kernel_, keep_;
  bool list_ = false;
};

}  // namespace

std::unique_ptr<Command> make_compile_command() { return std::make_unique<CompileCommand>(); }

}  // namespace fa4::cli
