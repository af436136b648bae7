// What libFuzzer does, for every compiler: runs a fuzz target over a corpus and over
// mutations of it, in several processes, and keeps what covers more.
//
// NAME [--seconds S] [--processes N] [--timeout S] [--memory MIB] [--seed N] [--found DIR]
//      [--crashes DIR] CORPUS...
//
// CORPUS are folders and files. A crash, an input that takes longer than --timeout and a process
// that grows beyond --memory leave the input in --crashes and end the run with status 1. With
// --seconds 0 every input of the corpus runs once. --found gets the inputs that cover more.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "coverage.h"
#include "mutations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A target may count things that its inputs reach, as bits that only grow, and say in words what
// the bits of all processes together are.
extern "C" __attribute__((weak)) void fuzz_reached(uint64_t* bits, size_t words);
extern "C" __attribute__((weak)) void fuzz_describe(const uint64_t* bits, size_t words);

namespace ptxemu::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostInput = 64 << 10, kReachedWords = 8;

struct Settings {
  double seconds = 60, timeout = 20;
  int processes = 1;
  uint64_t memory = 2048, seed = 1;
  std::string found, crashes = ".";
  std::vector<std::string> corpus;
};

// What a process shows to the one that watches it.
struct Shown {
  std::atomic<uint64_t> runs, kept, edges;
  uint64_t reached[kReachedWords];
  std::atomic<bool> busy;
  size_t size;
  uint8_t input[kMostInput];
};

[[noreturn]] void usage(const char* why) {
  std::fprintf(stderr,
               "%s; accepted: [--seconds S] [--processes N] [--timeout S] [--memory MIB] "
               "[--seed N] [--found DIR] [--crashes DIR] CORPUS...\n",
               why);
  std::exit(2);
}

Settings settings_of(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      settings.corpus.push_back(word);
      continue;
    }
    if (++i == argc) usage((word + " without a value").c_str());
    const std::string value = argv[i];
    if (word == "--seconds") {
      settings.seconds = std::atof(value.c_str());
    } else if (word == "--processes") {
      settings.processes = std::max(1, std::atoi(value.c_str()));
    } else if (word == "--timeout") {
      settings.timeout = std::atof(value.c_str());
    } else if (word == "--memory") {
      settings.memory = std::strtoull(value.c_str(), nullptr, 10);
    } else if (word == "--seed") {
      settings.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (word == "--found") {
      settings.found = value;
    } else if (word == "--crashes") {
      settings.crashes = value;
    } else {
      usage((word + ": unknown").c_str());
    }
  }
  if (settings.corpus.empty()) usage("no corpus");
  return settings;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

std::vector<std::string> read_corpus(const std::vector<std::string>& places) {
  std::vector<std::filesystem::path> files;
  for (const std::string& place : places) {
    if (std::filesystem::is_regular_file(place)) files.emplace_back(place);
    if (!std::filesystem::is_directory(place)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs;
  for (const auto& file : files) {
    if (std::string bytes = read_file(file); bytes.size() <= kMostInput) {
      inputs.push_back(std::move(bytes));
    }
  }
  return inputs;
}

// One process: its corpus, and the loop over it.
class Worker {
 public:
  Worker(const Settings& settings, int number, std::vector<std::string> corpus, Shown& shown)
      : settings_(settings),
        number_(number),
        shown_(shown),
        seeds_(std::move(corpus)),
        random_(settings.seed * 1000003 + static_cast<uint64_t>(number)),
        mutations_(seeds_, random_) {}

  // Each process takes its share of the seeds first, then all mutate all of them.
  void run() {
    const auto end = Clock::now() + std::chrono::duration<double>(settings_.seconds);
    for (size_t i = 0; i < seeds_.size(); ++i) {
      if (i % static_cast<size_t>(settings_.processes) != static_cast<size_t>(number_)) continue;
      if (settings_.seconds != 0 && Clock::now() >= end) return;
      run_one(seeds_[i]);
    }
    if (settings_.seconds == 0 || seeds_.empty()) return;
    while (Clock::now() < end) {
      std::string input = pick();
      mutations_.mutate(&input, pick());
      if (input.size() > kMostInput) input.resize(kMostInput);
      if (!run_one(input)) continue;
      ++shown_.kept;
      if (!settings_.found.empty()) save(input);
      found_.push_back(std::move(input));
    }
  }

 private:
  // What was found last is mutated as often as all seeds together.
  const std::string& pick() {
    const bool of_found = !found_.empty() && random_() % 2 == 0;
    const auto& from = of_found ? found_ : seeds_;
    return from[random_() % from.size()];
  }

  // True when the input reached what none had before.
  bool run_one(const std::string& input) {
    std::memcpy(shown_.input, input.data(), input.size());
    shown_.size = input.size();
    shown_.busy = true;
    begin_coverage();
    // Exactly as long as it says, so that a read beyond it is one beyond an allocation.
    const auto bytes = std::make_unique<uint8_t[]>(input.size());
    std::memcpy(bytes.get(), input.data(), input.size());
    LLVMFuzzerTestOneInput(bytes.get(), input.size());
    const bool more = end_coverage();
    shown_.busy = false;
    ++shown_.runs;
    shown_.edges = covered_edges();
    if (fuzz_reached != nullptr) fuzz_reached(shown_.reached, kReachedWords);
    return more;
  }

  void save(const std::string& input) const {
    write_file(std::filesystem::path(settings_.found) /
                   (std::to_string(settings_.seed) + "-" + std::to_string(number_) + "-" +
                    std::to_string(found_.size())),
               input);
  }

  const Settings& settings_;
  const int number_;
  Shown& shown_;
  std::vector<std::string> seeds_, found_;
  std::mt19937_64 random_;
  Mutations mutations_;
};

uint64_t resident_mebibytes(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/statm");
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) >> 20;
}

// The processes, and who watches them.
class Watch {
 public:
  explicit Watch(const Settings& settings) : settings_(settings) {
    const auto corpus = read_corpus(settings.corpus);
    std::printf("%zu inputs, %d processes\n", corpus.size(), settings.processes);
    std::fflush(stdout);
    for (int i = 0; i < settings.processes; ++i) {
      void* memory =
          ::mmap(nullptr, sizeof(Shown), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
      processes_.push_back({::fork(), new (memory) Shown{}});
      if (processes_.back().id != 0) continue;
      Worker(settings, i, corpus, *processes_.back().shown).run();
      ::_exit(0);
    }
  }

  // 0 when every process came to its end.
  int run() {
    const auto begin = Clock::now();
    auto told = begin;
    while (std::any_of(processes_.begin(), processes_.end(), [](auto& p) { return p.alive; })) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      for (Process& process : processes_) {
        if (process.alive) look_at(process);
      }
      if (failed_) {
        for (const Process& process : processes_) {
          if (process.alive) ::kill(process.id, SIGKILL);
        }
      }
      if (Clock::now() - told < std::chrono::seconds(60)) continue;
      told = Clock::now();
      report(begin);
    }
    report(begin);
    uint64_t reached[kReachedWords] = {};
    for (const Process& process : processes_) {
      for (size_t i = 0; i < kReachedWords; ++i) reached[i] |= process.shown->reached[i];
    }
    if (fuzz_describe != nullptr) fuzz_describe(reached, kReachedWords);
    return failed_ ? 1 : 0;
  }

 private:
  struct Process {
    pid_t id;
    Shown* shown;
    bool alive = true;
    uint64_t runs = 0;
    Clock::time_point since = Clock::now();
  };

  void look_at(Process& process) {
    int status = 0;
    if (::waitpid(process.id, &status, WNOHANG) == process.id) {
      process.alive = false;
      const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (!ended && !failed_) keep(process, "crash");
      return;
    }
    if (const uint64_t runs = process.shown->runs; runs != process.runs || !process.shown->busy) {
      process.runs = runs;
      process.since = Clock::now();
    }
    const std::chrono::duration<double> taken = Clock::now() - process.since;
    if (taken.count() > settings_.timeout) keep(process, "timeout");
    if (resident_mebibytes(process.id) > settings_.memory) keep(process, "memory");
  }

  void keep(const Process& process, const char* what) {
    failed_ = true;
    std::filesystem::create_directories(settings_.crashes);
    const auto path = std::filesystem::path(settings_.crashes) /
                      (std::string(what) + "-" + std::to_string(process.id));
    write_file(path, {reinterpret_cast<const char*>(process.shown->input), process.shown->size});
    std::fprintf(stderr, "%s: %s\n", what, path.c_str());
  }

  void report(Clock::time_point begin) const {
    uint64_t runs = 0, kept = 0, edges = 0;
    for (const Process& process : processes_) {
      runs += process.shown->runs;
      kept += process.shown->kept;
      edges = std::max<uint64_t>(edges, process.shown->edges);
    }
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    std::printf("%.0f s: %llu runs, %llu inputs that cover more, %llu edges\n", seconds.count(),
                static_cast<unsigned long long>(runs), static_cast<unsigned long long>(kept),
                static_cast<unsigned long long>(edges));
    std::fflush(stdout);
  }

  const Settings& settings_;
  std::vector<Process> processes_;
  bool failed_ = false;
};

}  // namespace
}  // namespace ptxemu::fuzz

int main(int argc, char** argv) {
  const ptxemu::fuzz::Settings settings = ptxemu::fuzz::settings_of(argc, argv);
  if (!settings.found.empty()) std::filesystem::create_directories(settings.found);
  return ptxemu::fuzz::Watch(settings).run();
}
