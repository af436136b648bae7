#include "emulator/machine/cluster_turns.h"

#include <algorithm>
#include <random>

#include "emulator/machine/cluster.h"
#include "emulator/machine/cluster_runs.h"
#include "emulator/machine/occupancy.h"

namespace ptxemu {

namespace {

// Warp instructions that a cluster runs before another gets a turn, if nothing of it moves: it may
// wait for the other. They become more as long as nothing moves anywhere.
constexpr uint64_t kShortTurn = 16'384;
// A drawn turn is of 2^0 to 2^8 warp instructions, or of as many as it takes for each warp to have
// had its own.
constexpr uint64_t kTurnSizes = 9;

uint64_t most_resident(const Launch& launch) {
  const DeviceModel& device = *launch.options.device;
  const uint32_t* block = launch.shape.block;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  const uint64_t ctas =
      uint64_t{device.multiprocessors} *
      ctas_per_multiprocessor(*launch.code, threads, launch.shape.dynamic_shared_bytes, device);
  return std::max<uint64_t>(1, ctas / launch.ctas_per_cluster);
}

class ClusterTurns {
 public:
  explicit ClusterTurns(Launch& launch)
      : launch_(launch),
        most_(most_resident(launch)),
        together_(std::min<uint64_t>(most_, launch.options.resident)),
        random_(launch.options.seed ^ 0x2545f4914f6cdd1du) {}

  void run() {
    if (together_ > 1) {
      run_interleaved();
    } else {
      run_one_by_one();
    }
  }

 private:
  struct Turn {
    bool moved;  // something of the cluster did
    bool stuck;  // nothing of it can run, or could have
    bool done;   // it has ended and is no longer resident
  };

  bool has_next() const { return launch_.next_cluster < launch_.clusters; }
  bool has_room() const { return has_next() && resident_.size() < most_; }
  void start_next() {
    const uint64_t index = launch_.cluster_at(launch_.next_cluster++);
    resident_.push_back(std::make_unique<Cluster>(launch_, index));
  }

  Turn give_turn(size_t place, uint64_t budget) {
    Cluster& cluster = *resident_[place];
    const uint64_t instructions = cluster.instructions, progress = cluster.progress;
    const Cluster::State state = cluster.run(budget);
    const bool moved = cluster.progress != progress;
    quiet_ = moved ? 0 : quiet_ + (cluster.instructions - instructions);
    // What the others wait for may have come.
    if (moved) {
      for (const auto& other : resident_) other->others_moved();
    }
    const bool done = state == Cluster::State::kDone;
    if (done) resident_.erase(resident_.begin() + static_cast<ptrdiff_t>(place));
    return {moved, state == Cluster::State::kStuck && !moved, done};
  }

  void run_one_by_one() {
    size_t place = 0;
    uint64_t budget = kShortTurn;
    bool any_ran = false;
    while (has_next() || !resident_.empty()) {
      if (place == resident_.size()) {
        if (has_room()) {
          start_next();
        } else {
          if (!any_ran || quiet_ > kLivelockInstructions) return report_deadlock();
          any_ran = false;
          place = 0;
          budget = std::min(2 * budget, kClusterBudget);
        }
      }
      const Turn turn = give_turn(place, budget);
      if (turn.moved) budget = kShortTurn;
      any_ran |= turn.done || !turn.stuck;
      if (turn.done) {
        if (place == resident_.size()) place = 0;
      } else if (!turn.moved) {
        ++place;
      }
    }
  }

  // The first able_ of the residents are not known to be stuck, and turns are drawn among them.
  void run_interleaved() {
    while (true) {
      while (has_next() && resident_.size() < together_) start_able();
      if (resident_.empty()) return;
      if (able_ == 0 || quiet_ > kShortTurn * together_) {
        if (has_room()) {
          start_able();
          quiet_ = 0;
        } else if (able_ == 0 || quiet_ > kLivelockInstructions) {
          return report_deadlock();
        }
      }
      const size_t place = random_() % able_;
      const Turn turn = give_turn(place, uint64_t{1} << random_() % kTurnSizes);
      if (turn.moved || turn.done) {
        able_ = resident_.size();
      } else if (turn.stuck) {
        std::swap(resident_[place], resident_[--able_]);
      }
    }
  }

  void start_able() {
    start_next();
    std::swap(resident_.back(), resident_[able_++]);
  }

  void report_deadlock() {
    std::sort(resident_.begin(), resident_.end(),
              [](const auto& a, const auto& b) { return a->index < b->index; });
    launch_.report_deadlock(resident_);
  }

  Launch& launch_;
  const uint64_t most_, together_;
  std::vector<std::unique_ptr<Cluster>> resident_;
  size_t able_ = 0;
  uint64_t quiet_ = 0;  // instructions since the last event anywhere
  std::mt19937_64 random_;
};

}  // namespace

void run_in_turns(Launch& launch) { ClusterTurns(launch).run(); }

}  // namespace ptxemu
