// Named barriers of a CTA and the barrier of a cluster ("Parallel Synchronization and Communication
// Instructions: bar, barrier" and "barrier.cluster"; PTX ISA 9.7.13.1, 9.7.13.4).
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "emulator/machine/cluster.h"

namespace ptxemu {

struct NamedBarrier {
  uint32_t expected = 0;  // threads of the phase in progress
  uint32_t arrived = 0;
  bool counted = false;     // expected was given; else it is every thread that has not exited
  uint64_t generation = 0;  // phases completed
  uint32_t population = 0;  // barrier.red of the phase in progress
  bool all = true, any = false;
  struct Result {
    uint32_t population = 0;
    bool all = true, any = false;
  } result[2];  // of the last two phases, by generation
  // By warp: the lanes of one that arrives in parts. It counts as 32 threads when they are all that
  // can come: the others have exited, or the CTA has none.
  std::map<uint32_t, uint32_t> parts;
  void arrive_in_part(const Warp& warp, uint32_t lanes);
  void count_whole(const Warp& warp);
};

// CTA state.
struct NamedBarriers {
  static constexpr uint32_t kCount = 16;
  std::array<NamedBarrier, kCount> barriers;
};

// Threads of the CTA, in whole warps, that have not exited.
uint32_t live_threads(const Cta& cta);
// Phases that wait for nobody else complete.
void complete_named_barriers(Cta& cta);
// Lanes of the warp have exited.
void leave_named_barriers(Cta& cta, const Warp& warp);

// Cluster state.
struct ClusterBarrier {
  uint64_t generation = 0;  // phases completed
  // Threads that have neither exited nor arrived in this phase.
  uint32_t missing(const Cluster& cluster) const;
  void complete_if_all(Cluster& cluster);
};

// Warp state: the generation at each lane's last arrive, and whether it has yet to wait for it.
struct ClusterArrival {
  std::array<uint64_t, 32> generation{};
  uint32_t waiting = 0;  // lanes
};

}  // namespace ptxemu
