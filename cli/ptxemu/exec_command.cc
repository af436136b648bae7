// ptxemu exec: a CUDA program on the emulated GPU, through runtime and driver libraries that take
// the place of the real ones.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/output_files.h"
#include "program.h"
#include "ptxemu/commands.h"
#include "ptxemu/machine_options.h"
#include "ptxemu/report.h"
#include "version.h"

extern char** environ;

namespace fa4::cli {
namespace {

constexpr const char* kLibrary = "libptxemu_cuda.so";

// Beside the command's own folder, as built and as installed.
std::filesystem::path library_folder() {
  const std::filesystem::path bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path folders[] = {bin / "../lib/ptxemu",
                                           bin / ".." / FA4_LIBDIR / "ptxemu"};
  for (const auto& folder : folders) {
    if (std::filesystem::exists(folder / kLibrary)) return std::filesystem::canonical(folder);
  }
  throw could_not_run(
      fmt::format("{} is not in {}", kLibrary, folders[0].lexically_normal().string()));
}

// Where scratch files go: TMPDIR; /tmp where that is not set, or empty.
std::filesystem::path temporary_folder() {
  constexpr std::string_view kName = "TMPDIR=";
  std::string asked;
  for (char** entry = environ; *entry != nullptr && asked.empty(); ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kName)) asked = text.substr(kName.size());
  }
  if (asked.empty()) return "/tmp";
  std::error_code error;
  if (std::filesystem::is_directory(asked, error)) return asked;
  throw bad_input(fmt::format("TMPDIR {}; accepted: a folder that is there", asked));
}

// A file that only this process knows, gone when the object is.
class ScratchFile {
 public:
  ScratchFile() {
    std::string name = (temporary_folder() / "ptxemu-XXXXXX").string();
    const int fd = ::mkstemp(name.data());
    if (fd < 0) throw could_not_run(fmt::format("{}: {}", name, std::strerror(errno)));
    ::close(fd);
    file_ = std::make_unique<Temporary>(name);
  }
  ~ScratchFile() { ::unlink(file_->path().c_str()); }
  const std::string& path() const { return file_->path(); }

 private:
  std::unique_ptr<Temporary> file_;
};

// `list` with what the environment has of it; an empty part of a list of folders would mean the
// current one.
void append(std::string* list, std::string_view rest) {
  if (!rest.empty()) *list += fmt::format(":{}", rest);
}

// The environment with `changes`; where `prepend` says so, before what a list already holds.
std::vector<std::string> environment(const std::string& preload, const std::string& folder,
                                     const std::string& settings) {
  std::vector<std::string> result;
  std::string libraries = folder, preloads = preload;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("LD_LIBRARY_PATH=")) {
      append(&libraries, text.substr(16));
    } else if (text.starts_with("LD_PRELOAD=")) {
      append(&preloads, text.substr(11));
    } else if (!text.starts_with("FA4_EMULATOR_EXEC=")) {
      result.emplace_back(text);
    }
  }
  result.push_back("LD_LIBRARY_PATH=" + libraries);
  result.push_back("LD_PRELOAD=" + preloads);
  result.push_back("FA4_EMULATOR_EXEC=" + settings);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// How the program ended.
struct Ending {
  int status = 0;  // as a shell gives it
  int signal = 0;  // that ended it; 0: none
};

// What this command does with signals is not the program's affair, but its own end is: it does not
// outlive the command.
void become_a_program() {
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
}

// What no launch's report says.
void add_error(const char* rule, const std::string& message, Json* all) {
  (*all)["status"] = "trap";
  (*all)["findings"].push_back({{"severity", "error"},
                                {"rule", rule},
                                {"launch", nullptr},
                                {"kernel", nullptr},
                                {"cta", nullptr},
                                {"warp", nullptr},
                                {"lane", nullptr},
                                {"ptx_line", nullptr},
                                {"source", ""},
                                {"object", ""},
                                {"message", message},
                                {"count", 1}});
}

// A program that died is a finding too: what it had launched until then may all be well.
void add_ending(const Ending& ending, Json* all, std::string* text) {
  (*all)["signal"] = ending.signal == 0 ? Json() : Json(ending.signal);
  if (ending.signal == 0) return;
  const std::string message = fmt::format("the program was ended by signal {} ({})", ending.signal,
                                          ::strsignal(ending.signal));
  add_error("signal", message, all);
  *text += fmt::format("error signal: {}\n", message);
}

class ExecCommand final : public Command {
 public:
  const char* name() const override { return "exec"; }
  const char* description() const override { return "Run a CUDA program on the emulated GPU"; }
  void declare(Options& app) override;
  void knows_json(const bool& json) override { json_ = &json; }
  Outcome run() override;

 private:
  std::string settings(const ptxemu::MachineOptions& options, const std::string& log) const;
  Ending run_program(const std::string& log, const ptxemu::MachineOptions& options);
  static Json merge(const std::string& log, std::string* text, bool* passed);

  MachineFlags flags_;
  std::vector<std::string> program_;
  std::optional<std::string> report_;
  std::string ptx_;
  const bool* json_ = nullptr;
};

void ExecCommand::declare(Options& app) {
  app.add_option("program", program_, "The program and its arguments, after --")
      ->type_name("-- PROGRAM ARGS");
  flags_.declare(app, "none");
  app.add_option("--ptx", ptx_, "PTX by kernel name, for modules that hold machine code only")
      ->type_name("DIR");
  app.add_option("--report", report_, "Written: what the emulator saw, as JSON")
      ->type_name("F.json");
  app.footer(
      "The program is one of nvcc -cudart shared, or uses the driver, with PTX in it (nvcc "
      "-gencode\n"
      "arch=compute_100a,code=compute_100a). Its output stays its own; with --json it goes to\n"
      "standard error. The status is the program's, or 1 when it is 0 and the emulator saw an "
      "error.");
}

std::string ExecCommand::settings(const ptxemu::MachineOptions& options,
                                  const std::string& log) const {
  return Json{{"device", options.device},
              {"policy", options.policy},
              {"seed", options.seed},
              {"check", options.check},
              {"math", options.math},
              {"threads", options.threads},
              {"max_instructions", options.max_instructions},
              {"max_memory", options.max_memory},
              {"max_local_memory", options.max_local_memory},
              {"max_printed", options.max_printed},
              {"max_call_depth", options.max_call_depth},
              {"max_recorded", options.max_recorded},
              {"launch_order", options.launch_order},
              {"reorder_products", options.reorder_products},
              {"resident", options.resident},
              {"ptx", ptx_},
              {"log", log}}
      .dump();
}

Ending ExecCommand::run_program(const std::string& log, const ptxemu::MachineOptions& options) {
  const std::filesystem::path folder = library_folder();
  std::vector<std::string> variables =
      environment((folder / kLibrary).string(), folder.string(), settings(options, log));
  const std::vector<char*> envp = pointers(variables), argv = pointers(program_);
  int failure[2];
  if (::pipe2(failure, O_CLOEXEC) != 0)
    throw could_not_run(fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t child = ::fork();
  if (child < 0) throw could_not_run(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) {
    if (*json_) ::dup2(STDERR_FILENO, STDOUT_FILENO);
    become_a_program();
    ::execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    (void)!::write(failure[1], &error, sizeof error);
    ::_exit(127);
  }
  ::close(failure[1]);
  int error = 0;
  const ssize_t told = ::read(failure[0], &error, sizeof error);
  ::close(failure[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (told == sizeof error) {
    throw bad_input(fmt::format("program {}: {}; accepted: an executable file", program_[0],
                                std::strerror(error)));
  }
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

// The launches' reports, one a line, as one.
Json ExecCommand::merge(const std::string& log, std::string* text, bool* passed) {
  Json all{{"status", "ok"},
           {"findings", Json::array()},
           {"deadlock", Json::array()},
           {"counters", {{"warp_instructions", 0}, {"moves", 0}, {"mma", 0}, {"tma_bytes", 0}}},
           {"seconds", 0.0},
           {"launches", Json::array()}};
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    const Json one = Json::parse(line, nullptr, false);
    if (one.is_discarded()) continue;  // the program died while it wrote this
    if (one.contains("refused")) {
      add_error("refused", one["refused"].get<std::string>(), &all);
      *passed = false;
      continue;
    }
    const size_t index = all["launches"].size();
    const std::string status = one["status"];
    if (is_worse(status, all["status"].get<std::string>())) all["status"] = status;
    for (const char* list : {"findings", "deadlock"}) {
      for (Json entry : one[list]) {
        entry["launch"] = index;
        all[list].push_back(std::move(entry));
      }
    }
    for (auto& [key, value] : all["counters"].items()) {
      value = value.get<uint64_t>() + one["counters"][key].get<uint64_t>();
    }
    all["seconds"] = all["seconds"].get<double>() + one["seconds"].get<double>();
    all["launches"].push_back(one["launches"][0]);
    if (!one["findings"].empty() || one["status"] != "ok") *text += one["text"].get<std::string>();
    *passed = *passed && one["passed"].get<bool>();
  }
  return all;
}

Outcome ExecCommand::run() {
  const ptxemu::MachineOptions options = flags_.options();
  if (program_.empty()) {
    throw bad_input("program: is missing; accepted: ptxemu exec [OPTIONS] -- PROGRAM ARGS");
  }
  if (!ptx_.empty() && !std::filesystem::is_directory(ptx_)) {
    throw bad_input(fmt::format("--ptx {}; accepted: a folder of .ptx files", ptx_));
  }
  const auto files = std::make_shared<OutputFiles>();
  if (report_) files->add_text("--report", *report_);
  const ScratchFile log;
  const Ending ending = run_program(log.path(), options);

  Outcome outcome;
  bool passed = true;
  outcome.json = {{"device", options.device},
                  {"policy", options.policy},
                  {"seed", options.seed},
                  {"exit_status", ending.status}};
  outcome.json.update(merge(log.path(), &outcome.text, &passed));
  add_ending(ending, &outcome.json, &outcome.text);
  outcome.code = static_cast<ExitCode>(ending.status != 0 ? ending.status : passed ? 0 : 1);
  if (report_) {
    files->set_text("--report", json_text(name(), kVersion, outcome.json));
    files->write();
    outcome.files.push_back(files);
  }
  return outcome;
}

}  // namespace

std::unique_ptr<Command> make_exec_command() { return std::make_unique<ExecCommand>(); }

}  // namespace fa4::cli
