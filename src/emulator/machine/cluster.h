// A cluster of CTAs: what is resident together, its asynchronous engines, and how its warps take
// turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "emulator/machine/engine.h"
#include "emulator/machine/warp.h"

namespace ptxemu {

struct Launch;
struct Cluster;

struct Cta {
  Cluster* cluster = nullptr;
  uint32_t rank = 0;           // in its cluster
  uint32_t id[3] = {0, 0, 0};  // %ctaid
  std::unique_ptr<std::byte[]> shared_storage;
  std::byte* shared = nullptr;  // 1 KiB aligned; offset 0 is the reserved part
  uint32_t shared_bytes = 0;    // reserved, static and dynamic
  std::vector<std::unique_ptr<Warp>> warps;
  uint32_t live_warps = 0;  // that have not exited
  FamilyStates states;

  template <class T>
  T& state() {
    return states.get<T>();
  }
};

struct Cluster {
  Cluster(Launch& launch, uint64_t index);

  Launch& launch;
  uint64_t index = 0;  // of the grid's clusters, in order of %clusterid
  uint32_t id[3] = {0, 0, 0};
  std::vector<std::unique_ptr<Cta>> ctas;
  Engines engines;
  std::mt19937_64 random;     // seeded by the launch's seed and the index
  uint64_t instructions = 0;  // warp instructions executed
  // What its products count as beside them: each lane of a warp may issue a tcgen05.mma, whose work
  // is that of a thousand instructions, and a limit on instructions is one on the time of a run.
  uint64_t product_instructions = 0;
  uint64_t progress = 0;  // counts what may free a waiting warp; see note_progress
  uint64_t polls = 0;     // since then
  FamilyStates states;

  enum class State : uint8_t { kRunning, kStuck, kDone };
  // Runs until all is done, nothing can run, or `budget` warp instructions have passed.
  State run(uint64_t budget);
  // Other clusters have moved, for which warps of this one may wait: how long they have waited in
  // vain counts from here.
  void others_moved();
  // A barrier phase, a store that others may poll ...: resets the livelock count.
  void note_progress() {
    ++progress;
    polls = 0;
  }
  // An atomic has read a place and left it as it was, as one does that waits for a lock.
  void note_poll() { ++polls; }
  template <class T>
  T& state() {
    return states.get<T>();
  }

 private:
  uint32_t run_warps();  // how many turns came to something
  uint32_t run_warp(Warp& warp);
  bool release_joins();
  bool expire_waits();
  void let_spin(uint32_t warps);
  uint32_t next_quantum();
  void check_limit();
  // Ends the launch as a trap, at the line where the first warp that runs is.
  [[noreturn]] void stop(const std::string& rule, const std::string& message);

  // How long nothing has moved: a wait goes on over many short turns.
  struct Quiet {
    uint64_t progress = 0;  // of this cluster, which has not changed
    uint64_t since = 0;     // the number of instructions when it or another cluster last moved
    uint64_t advanced = 0;  // the same when this one did, or asynchronous work got a turn
    uint32_t expiries = 0;  // of every try_wait
  } quiet_;
};

}  // namespace ptxemu
