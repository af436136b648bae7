// Clusters that cannot meet, on all cores.
#pragma once

#include "emulator/machine/launch.h"

namespace ptxemu {

// All clusters together, without one event: a loop that nothing will end.
inline constexpr uint64_t kLivelockInstructions = 400'000'000;
// Warp instructions that a cluster runs at most before it is looked at.
inline constexpr uint64_t kClusterBudget = 4'000'000;

// Host threads that run clusters of the launch side by side: options.threads (0: all cores), no
// more than there are clusters, and no more than may hold all frames that their clusters can have
// within options.max_local_memory. Where functions call themselves, or are called by a pointer, a
// cluster may need all of it and runs alone.
uint64_t host_threads(const Launch& launch);

// Runs every cluster from its start to its end as a part of the launch, on host_threads(launch)
// threads, and takes the parts in the order in which the clusters start. A trap or a
// livelock ends the launch at its cluster; deadlocked ones are collected up to as many as the
// device holds. What the launch then holds is the same for any number of threads. Rethrows what a
// cluster threw.
void run_side_by_side(Launch& launch);

}  // namespace ptxemu
