#include "emulator/machine/barriers.h"

#include <bit>

namespace ptxemu {

uint32_t live_threads(const Cta& cta) {
  uint32_t threads = 0;
  for (const auto& warp : cta.warps) threads += warp->done() ? 0 : 32;
  return threads;
}

void NamedBarrier::arrive_in_part(const Warp& warp, uint32_t lanes) {
  uint32_t& here = parts[warp.index];
  if ((here & lanes) != 0) here = 0;  // the warp arrives once more
  here |= lanes;
  arrived += static_cast<uint32_t>(std::popcount(lanes));
  count_whole(warp);
}

void NamedBarrier::count_whole(const Warp& warp) {
  const auto here = parts.find(warp.index);
  if (here == parts.end() || (here->second | warp.exited | ~warp.lanes) != ~0u) return;
  arrived += 32 - static_cast<uint32_t>(std::popcount(here->second));
  parts.erase(here);
}

namespace {

void complete(NamedBarrier& barrier) {
  barrier.result[barrier.generation % 2] = {barrier.population, barrier.all, barrier.any};
  ++barrier.generation;
  barrier.arrived = 0;
  barrier.population = 0;
  barrier.all = true;
  barrier.any = false;
  barrier.parts.clear();
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

void leave_named_barriers(Cta& cta, const Warp& warp) {
  for (NamedBarrier& barrier : cta.state<NamedBarriers>().barriers) barrier.count_whole(warp);
  complete_named_barriers(cta);
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
