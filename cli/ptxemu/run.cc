// ptxemu run: kernels of PTX files over buffers, as a launch file says.
#include <fmt/format.h>

#include <memory>
#include <set>

#include "io/output_files.h"
#include "program.h"
#include "ptxemu/allowed_paths.h"
#include "ptxemu/buffers.h"
#include "ptxemu/commands.h"
#include "ptxemu/launch_file.h"
#include "ptxemu/launches.h"
#include "ptxemu/machine_options.h"
#include "ptxemu/report.h"
#include "ptxemu/trace.h"
#include "version.h"

namespace fa4::cli {
namespace {

constexpr const char* kFooter =
    "The launch file names kernel, grid, block, cluster, shared_bytes, buffers and args, or "
    "several\n"
    "launches over the same buffers (docs/cli.md). Paths in it are relative to the current "
    "directory.";

class EmulateCommand final : public Command {
 public:
  const char* name() const override { return "run"; }
  const char* description() const override { return "Run PTX kernels and say what is wrong"; }
  void declare(Options& app) override;
  Outcome run() override;

 private:
  void claim_outputs(OutputFiles& outputs, const LaunchFile& file,
                     const EmulatedBuffers& buffers) const;
  std::vector<LaunchResult> run_all(ptxemu::Machine& machine, std::vector<ReadyLaunch>& launches,
                                    const EmulatedBuffers& buffers, Traces& traces) const;

  MachineFlags flags_;
  std::string ptx_, launch_;
  bool allow_paths_ = false;
  std::optional<std::string> files_, report_, trace_, counts_;
};

void EmulateCommand::declare(Options& app) {
  app.add_option("ptx", ptx_, "PTX text; may be left out when every launch names its own")
      ->type_name("F.ptx");
  app.add_option("--launch", launch_, "What to launch, over which buffers")->type_name("F.json");
  app.add_option("--files", files_, "A folder whose files the launch file may name as well")
      ->type_name("DIR");
  app.add_flag("--allow-paths", allow_paths_, "The launch file may name any file");
  flags_.declare(app, "none");
  app.add_option("--report", report_, "Written: the findings, as JSON")->type_name("F.json");
  app.add_option("--trace", trace_, "Written: warps and engines over time, for Perfetto or Chrome")
      ->type_name("F.json");
  app.add_option("--counts", counts_, "Written: how often each warp executed each line of PTX")
      ->type_name("F.json");
  app.footer(kFooter);
}

void EmulateCommand::claim_outputs(OutputFiles& outputs, const LaunchFile& file,
                                   const EmulatedBuffers& buffers) const {
  outputs.add_input("--launch", launch_);
  std::set<std::string> sources;
  for (const LaunchSpec& launch : file.launches) {
    if (sources.insert(launch.ptx).second) outputs.add_input("ptx", launch.ptx);
  }
  buffers.claim(outputs);
  if (report_) outputs.add_text("--report", *report_);
  if (trace_) outputs.add_text("--trace", *trace_);
  if (counts_) outputs.add_text("--counts", *counts_);
}

// Stops after a launch that did not come to its end: what follows would run on half a result.
std::vector<LaunchResult> EmulateCommand::run_all(ptxemu::Machine& machine,
                                                  std::vector<ReadyLaunch>& launches,
                                                  const EmulatedBuffers& buffers,
                                                  Traces& traces) const {
  std::vector<std::vector<std::vector<std::byte>>> arguments;
  for (const ReadyLaunch& launch : launches) {
    arguments.push_back(argument_bytes(*launch.spec, buffers));
  }
  std::vector<LaunchResult> results;
  for (size_t i = 0; i < launches.size(); ++i) {
    ReadyLaunch& launch = launches[i];
    try {
      ptxemu::MachineOptions options = machine.options();
      options.trace_file = traces.next();
      machine.set_options(options);
      results.push_back(
          {launch.request, machine.launch(launch.module, launch.request, arguments[i])});
    } catch (const ptxemu::MemoryError& error) {
      throw could_not_run(
          fmt::format("{}{}: {}", launch.spec->where, launch.request.kernel, error.what()));
    } catch (const ptxemu::InputError& error) {
      throw bad_input(
          fmt::format("{}{}: {}", launch.spec->where, launch.request.kernel, error.what()));
    }
    const std::string& status = results.back().report.status;
    if (status == "trap" || status == "deadlock") break;
  }
  return results;
}

Outcome EmulateCommand::run() {
  ptxemu::MachineOptions options = flags_.options();
  options.count_lines = counts_.has_value();
  if (launch_.empty()) throw bad_input("--launch: is missing; accepted: --launch F.json");
  const LaunchFile file =
      naming("--launch", launch_, [&] { return read_launch_file(launch_, ptx_); });
  if (!allow_paths_) {
    naming("--launch", launch_, [&] { AllowedPaths(launch_, files_).check(file); });
  }
  EmulatedBuffers buffers =
      naming("--launch", launch_, [&] { return EmulatedBuffers(file.buffers); });
  const auto files = std::make_shared<OutputFiles>();
  OutputFiles& outputs = *files;
  claim_outputs(outputs, file, buffers);

  ptxemu::Machine machine(options);
  std::vector<ReadyLaunch> launches =
      naming("--launch", launch_, [&] { return load_launches(machine, file.launches); });
  buffers.upload(machine);
  Traces traces(trace_.value_or(""));
  const std::vector<LaunchResult> results =
      naming("--launch", launch_, [&] { return run_all(machine, launches, buffers, traces); });

  Outcome outcome;
  outcome.code = all_passed(results) ? kSuccess : kCheckFailed;
  outcome.json = report_json(options, results);
  outcome.text = report_text(options, results);
  buffers.save(machine, outputs);
  if (report_) {
    outputs.set_text("--report", json_text(name(), kVersion, outcome.json));
  }
  if (trace_) outputs.set_text("--trace", traces.merged());
  if (counts_) outputs.set_text("--counts", line_counts_json(results).dump() + "\n");
  outputs.write();
  outcome.files.push_back(files);
  return outcome;
}

}  // namespace

std::unique_ptr<Command> make_emulate_command() { return std::make_unique<EmulateCommand>(); }

}  // namespace fa4::cli
