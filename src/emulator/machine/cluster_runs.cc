#include "emulator/machine/cluster_runs.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "emulator/machine/cluster.h"
#include "emulator/machine/simt.h"

namespace ptxemu {

namespace {

// Most bytes of frames that one cluster has at a time: each lane of a warp may be in a call of its
// own. A cluster that takes more than the option allows ends the launch.
uint64_t most_frame_bytes(const Launch& launch) {
  const uint64_t most = launch.options.max_local_memory;
  if (!launch.code->calls_are_bounded) return most;
  const uint32_t* block = launch.shape.block;
  const uint64_t warps =
      (uint64_t{block[0]} * block[1] * block[2] + 31) / 32 * launch.ctas_per_cluster;
  uint64_t bytes = 0;
  for (const auto& [name, function] : launch.code->functions) {
    bytes += warps * (function.get() == launch.code->main ? 1 : 32) * frame_bytes(*function);
  }
  return std::min(bytes, most);
}

class ClusterRuns {
 public:
  explicit ClusterRuns(Launch& launch)
      : launch_(launch),
        most_stuck_(std::max(1u, launch.options.device->multiprocessors / launch.ctas_per_cluster)),
        end_(launch.clusters) {}

  void run() {
    std::vector<std::jthread> helpers;
    try {
      for (uint64_t i = 1; i < host_threads(launch_); ++i) helpers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The host gives no more threads: those that there are do the work.
    }
    work();
    helpers.clear();
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  }

 private:
  static constexpr uint64_t kMostAhead = 4096;
  struct Result {
    std::unique_ptr<Launch> part;
    bool ends_launch = false;  // a trap, a livelock
    std::exception_ptr thrown;
  };

  void work() {
    while (true) {
      const uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (!may_start(index)) return;
      Result result;
      try {
        result.part = launch_.part();
        run_cluster(*result.part, index, &result);
      } catch (const LaunchStopped&) {
        result.ends_launch = true;
      } catch (...) {
        result.thrown = std::current_exception();
      }
      finish(index, std::move(result));
    }
  }

  // Waits while the cluster is so far ahead of the first that has not ended that the results
  // between them would fill the memory; false when it does not count any more.
  bool may_start(uint64_t index) {
    std::unique_lock lock(mutex_);
    while (index >= taken_ + kMostAhead && index < end_) {
      const uint32_t seen = changes_.load();
      lock.unlock();
      changes_.wait(seen);
      lock.lock();
    }
    return index < end_;
  }

  void run_cluster(Launch& part, uint64_t index, Result* result) {
    std::vector<std::unique_ptr<Cluster>> resident;
    resident.push_back(std::make_unique<Cluster>(part, launch_.cluster_at(index)));
    Cluster& cluster = *resident.front();
    uint64_t quiet = 0;  // instructions since the last event
    while (index < end_.load(std::memory_order_relaxed)) {
      const uint64_t instructions = cluster.instructions, progress = cluster.progress;
      const Cluster::State state = cluster.run(kClusterBudget);
      if (state == Cluster::State::kDone) return;
      const uint64_t ran = cluster.instructions - instructions;
      const bool moved = cluster.progress != progress;
      quiet = moved ? 0 : quiet + ran;
      const bool stuck = state == Cluster::State::kStuck && !moved;
      result->ends_launch = quiet > kLivelockInstructions;
      if (stuck || result->ends_launch) return part.report_deadlock(resident);
    }
  }

  void finish(uint64_t index, Result result) {
    {
      const std::lock_guard lock(mutex_);
      try {
        finished_.emplace(index, std::move(result));
        while (!finished_.empty() && finished_.begin()->first == taken_ && taken_ < end_) {
          take(finished_.begin()->second);
          finished_.erase(finished_.begin());
        }
      } catch (...) {
        thrown_ = std::current_exception();
        end_ = 0;
      }
    }
    changes_.fetch_add(1);
    changes_.notify_all();
  }

  void take(Result& result) {
    ++taken_;
    bool last = result.ends_launch || result.thrown != nullptr;
    thrown_ = result.thrown;
    if (result.part != nullptr) {
      if (result.part->status == Status::kDeadlock) last |= ++stuck_ >= most_stuck_;
      launch_.take(*result.part);
      last |= launch_.status == Status::kTrap;
    }
    if (last) end_ = taken_;
  }

  Launch& launch_;
  const uint32_t most_stuck_;
  std::atomic<uint64_t> next_{0};  // the first cluster that has not started
  std::atomic<uint64_t> end_;      // clusters from here on do not count
  // Counts the calls of finish. A condition variable's wait would ask for a newer C++ library than
  // the wheel's.
  std::atomic<uint32_t> changes_{0};
  std::mutex mutex_;  // of what follows
  std::map<uint64_t, Result> finished_;
  uint64_t taken_ = 0;
  uint32_t stuck_ = 0;
  std::exception_ptr thrown_;
};

}  // namespace

uint64_t host_threads(const Launch& launch) {
  const uint64_t asked = launch.options.threads, most = launch.options.max_local_memory;
  const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t threads = std::min(asked != 0 ? asked : cores, launch.clusters);
  return most == 0 ? threads : std::min(threads, most / most_frame_bytes(launch));
}

void run_side_by_side(Launch& launch) { ClusterRuns(launch).run(); }

}  // namespace ptxemu
