#include "emulator/machine/barriers.h"

#include <bit>

namespace ptxemu {

uint32_t live_threads(const Cta& cta) {
  uint32_t threads = 0;
  for (const auto& warp : cta.warps) threads += warp->done() ? 0 : 32;
  return threads;
}

namespace {

void complete(NamedBarrier& barrier) {
  barrier.result[barrier.generation % 2] = {barrier.population, barrier.all, barrier.any};
  ++barrier.generation;
  barrier.arrived = 0;
  barrier.population = 0;
  barrier.all = true;
  barrier.any = false;
}

}  // namespace

void complete_named_barriers(Cta& cta) {
  for (NamedBarrier& barrier : cta.state<NamedBarriers>().barriers) {
    if (barrier.arrived == 0) continue;
    if (!barrier.counted) barrier.expected = live_threads(cta);
    if (barrier.arrived < barrier.expected) continue;
    complete(barrier);
    cta.cluster->note_progress();
  }
}

uint32_t ClusterBarrier::missing(const Cluster& cluster) const {
  uint32_t threads = 0;
  for (const auto& cta : cluster.ctas) {
    for (const auto& warp : cta->warps) {
      const auto& arrival = warp->state<ClusterArrival>();
      for (uint32_t m = warp->lanes & ~warp->exited; m != 0; m &= m - 1) {
        const int lane = std::countr_zero(m);
        const bool here = (arrival.waiting >> lane & 1) != 0 &&
                          arrival.generation[static_cast<size_t>(lane)] == generation;
        threads += here ? 0 : 1;
      }
    }
  }
  return threads;
}

void ClusterBarrier::complete_if_all(Cluster& cluster) {
  if (missing(cluster) != 0) return;
  ++generation;
  cluster.note_progress();
}

}  // namespace ptxemu
