// fa4 cache: the compiled kernels on disk.
#include <fmt/format.h>

#include "commands.h"
#include "jit/kernel_cache.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

class CacheCommand final : public Command {
 public:
  const char* name() const override { return "cache"; }
  const char* description() const override { return "List or clear the compiled kernels on disk"; }

  void declare(Options& app) override {
    app.add_option("action", action_, "list, clear or path")->type_name("");
  }

  Outcome run() override {
    Outcome outcome;
    outcome.json["device"] = "cpu";
    const std::string path = KernelCache::get().path();
    outcome.json["path"] = path.empty() ? Json() : Json(path);
    const std::string problem = KernelCache::get().problem();
    if (!problem.empty()) throw bad_input(problem);
    if (action_ == "path") {
      outcome.text = path.empty() ? "the disk cache is off\n" : path + "\n";
    } else if (action_ == "list") {
      list(outcome);
    } else if (action_ == "clear") {
      const size_t removed = KernelCache::get().clear();
      outcome.json["removed"] = removed;
      outcome.text = fmt::format("removed {} kernels\n", removed);
    } else if (action_.empty()) {
      throw bad_input("an action is missing; accepted: list, clear, path");
    } else {
      throw bad_input(fmt::format("{}: no such action; accepted: list, clear, path", action_));
    }
    return outcome;
  }

 private:
  static void list(Outcome& outcome) {
    outcome.json["entries"] = Json::array();
    for (const KernelCache::Entry& entry : KernelCache::get().list()) {
      outcome.json["entries"].push_back({{"kernel", entry.display_name},
                                         {"architecture", entry.architecture},
                                         {"compiler", entry.compiler},
                                         {"path", entry.path},
                                         {"bytes", entry.bytes}});
      outcome.text += fmt::format("{:<40} {:<8} {:<12} {:>9} bytes  {}\n", entry.display_name,
                                  entry.architecture, entry.compiler, entry.bytes, entry.path);
    }
  }

  std::string action_;
};

}  // namespace

std::unique_ptr<Command> make_cache_command() { return std::make_unique<CacheCommand>(); }

}  // namespace fa4::cli
