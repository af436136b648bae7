#include "emulator_kernel_bench.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <map>
#include <vector>

#include "ptxemu/buffers.h"
#include "ptxemu/launch_file.h"
#include "ptxemu/launches.h"

namespace {

using ptxemu::LaunchReport;

// Numbers of the lines whose statement is a mov.
std::set<uint32_t> mov_lines(const std::string& file) {
  std::ifstream in(file);
  std::set<uint32_t> lines;
  std::string text;
  for (uint32_t number = 1; std::getline(in, text); ++number) {
    size_t at = text.find_first_not_of(" \t{");
    if (at != std::string::npos && text[at] == '@') {
      at = text.find_first_not_of(" \t", text.find_first_of(" \t", at));
    }
    if (at != std::string::npos && text.compare(at, 4, "mov.") == 0) lines.insert(number);
  }
  return lines;
}

// What some warps of a launch executed, and how long their turns took.
struct WarpWork {
  uint64_t statements = 0;  // without mov
  double seconds = 0;
};

class Kernel {
 public:
  Kernel(const KernelFiles& files, bool check, bool count)
      : files_(files),
        file_(fa4::cli::read_launch_file(files.launch, files.ptx)),
        buffers_(file_.buffers) {
    ptxemu::MachineOptions options;
    options.threads = 1;
    options.check = check;
    options.count_lines = count;
    machine_.set_options(options);
    launches_ = fa4::cli::load_launches(machine_, file_.launches);
    buffers_.upload(machine_);
    for (const auto& launch : launches_) {
      arguments_.push_back(fa4::cli::argument_bytes(*launch.spec, buffers_));
      if (count) mov_lines_.try_emplace(launch.spec->ptx, mov_lines(launch.spec->ptx));
    }
  }

  std::vector<LaunchReport> run() {
    std::vector<LaunchReport> reports;
    for (size_t i = 0; i < launches_.size(); ++i) {
      reports.push_back(machine_.launch(launches_[i].module, launches_[i].request, arguments_[i]));
    }
    return reports;
  }

  // Of the warps that are asked for, in the reports of run().
  WarpWork work(const std::vector<LaunchReport>& reports) const {
    WarpWork work;
    for (size_t i = 0; i < reports.size(); ++i) {
      const std::set<uint32_t>& movs = mov_lines_.at(launches_[i].spec->ptx);
      for (const ptxemu::ReportedLines& warp : reports[i].line_counts) {
        if (!files_.warps.empty() && files_.warps.count(warp.warp) == 0) continue;
        work.seconds += warp.seconds;
        for (const auto& [line, times] : warp.lines) {
          if (movs.count(line) == 0) work.statements += times;
        }
      }
    }
    return work;
  }

 private:
  const KernelFiles files_;
  fa4::cli::LaunchFile file_;
  fa4::cli::EmulatedBuffers buffers_;
  ptxemu::Machine machine_;
  std::vector<fa4::cli::ReadyLaunch> launches_;
  std::vector<std::vector<std::vector<std::byte>>> arguments_;
  std::map<std::string, std::set<uint32_t>> mov_lines_;
};

bool ended(const std::vector<LaunchReport>& reports) {
  for (const LaunchReport& report : reports) {
    if (report.status == "trap" || report.status == "deadlock") return false;
  }
  return true;
}

void run_kernel(benchmark::State& state, const KernelFiles& files, bool check, bool count) {
  Kernel kernel(files, check, count);
  kernel.run();  // decodes
  uint64_t statements = 0;
  WarpWork work;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    const auto reports = kernel.run();
    const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    if (!ended(reports)) {
      state.SkipWithError("a launch did not come to its end");
      return;
    }
    for (const LaunchReport& report : reports) {
      statements += report.warp_instructions - report.moves;
    }
    if (!count) continue;
    const WarpWork more = kernel.work(reports);
    work.statements += more.statements;
    // Others may have the processor meanwhile, in a warp's turn as at any other time.
    work.seconds += more.seconds * cpu / wall.count();
  }
  state.counters["without mov/s"] =
      benchmark::Counter(static_cast<double>(statements), benchmark::Counter::kIsRate);
  if (!count) return;
  state.counters["of the warps' own time"] = static_cast<double>(work.statements) / work.seconds;
}

}  // namespace

void register_kernel(const KernelFiles& files) {
  for (const bool check : {false, true}) {
    for (const bool count : {false, true}) {
      const std::string name =
          std::string("kernel/check:") + (check ? "all" : "none") + (count ? "/warps" : "");
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        run_kernel(state, files, check, count);
      })->Unit(benchmark::kMillisecond);
    }
  }
}
