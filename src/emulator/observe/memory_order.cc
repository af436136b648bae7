// What warps tell each other by strong accesses and fences ("Release and Acquire Patterns",
// "Scope", "Proxies"; PTX ISA 8.5 to 8.8).
#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/observe/global_hazards.h"
#include "emulator/observe/hazards.h"

namespace ptxemu {

namespace {

// The system is no more than the device here.
Scope widest(Scope scope) { return std::min(scope, Scope::kGpu); }

}  // namespace

// --- Strong accesses ---

Knowledge* ClusterHazards::listener(uint32_t agent, bool acquires, Scope writers, uint64_t word,
                                    uint64_t release) {
  const size_t scope = static_cast<size_t>(writers);
  Heard& heard = heard_[agent][scope];
  if (heard.knows(word, release)) return nullptr;
  if (acquires) {
    heard.note(word, release);
    return &of_warp(agent);
  }
  Awaiting& awaiting = awaiting_fence_[agent][scope];
  if (awaiting.heard.knows(word, release)) return nullptr;
  awaiting.heard.note(word, release);
  return &awaiting.knowledge;
}

bool ClusterHazards::hears_sequenced(uint32_t agent, uint64_t word, uint64_t writes) {
  if (writes == 0 || heard_sequenced_[agent].knows(word, writes)) return false;
  heard_sequenced_[agent].note(word, writes);
  return true;
}

void ClusterHazards::note_own_release(uint32_t agent, Scope readers, uint64_t word,
                                      uint64_t release) {
  const size_t scope = static_cast<size_t>(readers);
  heard_[agent][scope].note_own(word, release);
  awaiting_fence_[agent][scope].heard.note_own(word, release);
}

std::shared_ptr<const Knowledge> ClusterHazards::released_by(uint32_t agent,
                                                             const MemoryAccess& access,
                                                             Scope readers) {
  if (!access.writes || !access.strong || access.scope < readers) return nullptr;
  if (access.releases) return snapshot(agent);
  return fenced_[agent][static_cast<size_t>(readers)];
}

Told<Knowledge>& ClusterHazards::Flag::of_rank(uint32_t rank) {
  const auto known = std::find_if(own.begin(), own.end(),
                                  [rank](const auto& entry) { return entry.first == rank; });
  return known != own.end() ? known->second : own.emplace_back(rank, Told<Knowledge>()).second;
}

// A strong access passes on what is known: a release or a fence before it, an acquire or a fence
// after it. Both must have a scope that reaches the other thread.
void ClusterHazards::exchange(const Exec& exec, const MemoryAccess& access) {
  const uint32_t agent = exec.warp->agent, rank = exec.cta->rank;
  const auto each_word = [&](const auto& use) {
    uint64_t last = ~uint64_t{0};
    exec.for_lanes([&](int lane) {
      uint64_t key = access.address[lane];
      if (access.space == MemoryAccess::Space::kShared) {
        key |= uint64_t{access.cta[lane]->rank + 1} << 56;
      }
      if (key != last) use(key);
      last = key;
    });
  };
  if (access.reads) {
    each_word([&](uint64_t key) {
      const auto found = flags_.find(key);
      if (found == flags_.end()) return;
      const Flag& flag = found->second;
      const auto learn = [&](const Told<Knowledge>& told, Scope writers) {
        Knowledge* knows = listener(agent, access.acquires, writers, key, flag.releases);
        if (knows != nullptr && !told.none()) knows->join(told.all());
      };
      for (const auto& [of, told] : flag.own) {
        if (of == rank) learn(told, Scope::kCta);
      }
      if (access.scope >= Scope::kCluster) learn(flag.wide, Scope::kCluster);
    });
  } else if (access.writes) {
    // A store that is no read-modify-write ends what others have released: who reads it does not
    // read theirs. A warp's own release goes on ("Release and Acquire Patterns").
    each_word([&](uint64_t key) {
      const auto found = flags_.find(key);
      if (found == flags_.end()) return;
      Flag& flag = found->second;
      if (flag.writer != agent) flag.wide.clear(), flag.own.clear();
      flag.writer = agent;
    });
  }
  // Whoever releases to the cluster also does to its own CTA.
  if (const auto released = released_by(agent, access, Scope::kCta)) {
    each_word([&](uint64_t key) {
      Flag& flag = flags_[key];
      flag.of_rank(rank).add(released);
      ++flag.releases;
      for (const Scope readers : {Scope::kCta, Scope::kCluster}) {
        note_own_release(agent, readers, key, flag.releases);
      }
    });
  }
  if (const auto released = released_by(agent, access, Scope::kCluster)) {
    each_word([&](uint64_t key) { flags_[key].wide.add(released); });
  }
  if (access.space == MemoryAccess::Space::kGlobal && access.scope >= Scope::kGpu) {
    global_.exchange(*this, exec, access);
  }
  if (access.releases) step(agent);
}

// --- Fences ---

// A relaxed store or arrival that follows passes on what the fence covers, beside what earlier ones
// did.
void ClusterHazards::release_at_fence(uint32_t agent, Scope scope, const Knowledge& covered) {
  for (size_t i = 0; i <= static_cast<size_t>(widest(scope)); ++i) {
    auto both = std::make_shared<Knowledge>(covered);
    if (fenced_[agent][i] != nullptr) both->join(*fenced_[agent][i]);
    fenced_[agent][i] = std::move(both);
  }
}

// All that earlier fences covered is among what the warp knows.
void ClusterHazards::release_all_at_fence(uint32_t agent, Scope scope) {
  for (size_t i = 0; i <= static_cast<size_t>(widest(scope)); ++i) {
    fenced_[agent][i] = snapshot(agent);
  }
}

// What relaxed reads have seen so far counts from here on.
void ClusterHazards::acquire_at_fence(uint32_t agent, const Fence& fence) {
  Knowledge& k = of_warp(agent);
  for (size_t i = 0; i <= static_cast<size_t>(widest(fence.scope)); ++i) {
    Awaiting& awaiting = awaiting_fence_[agent][i];
    k.join(fence.only_shared ? awaiting.knowledge.only_shared() : awaiting.knowledge);
    if (fence.only_shared) continue;
    heard_[agent][i].take(awaiting.heard);
    awaiting = {};
  }
}

// What fences of the kind .sc before this one covered is known from here on, and is among what it
// covers. Of the device's scope alone: narrower ones are taken as .acq_rel.
void ClusterHazards::sequence_at_fence(uint32_t agent) {
  Knowledge& k = of_warp(agent);
  const uint64_t own = cluster_.index;
  if (k.read_sequenced != nullptr) {
    k.join_clusters(*k.read_sequenced, own);
    k.read_sequenced = nullptr;
  }
  ptxemu::join(k.sequenced, k.foreign);
  ptxemu::join(k.sequenced, ForeignClocks{{own, {k.generic, k.async_global}}});
}

void ClusterHazards::fence(const Exec& exec, const Fence& fence) {
  const uint32_t agent = exec.warp->agent;
  Knowledge& k = of_warp(agent);
  switch (fence.kind) {
    case FenceKind::kProxyAsync:
    case FenceKind::kProxyAsyncGlobal:
      if (fence.kind == FenceKind::kProxyAsync) k.show_shared_to_async();
      k.async_global.join(k.generic);
      k.show_foreign_to_async();
      break;
    case FenceKind::kProxyAsyncShared: k.show_shared_to_async(); break;
    case FenceKind::kProxyTensorMap:
      if (fence.releases) k.tensor_maps.join(k.generic);
      for (const uint64_t map : fence.maps) note_map_fence(agent, map);
      break;
    // Relaxed arrivals and waits order tensor memory between these two ("Canonical synchronization
    // patterns", 9.7.16.6.4).
    case FenceKind::kTensorAfterSync:
      k.tensor.join(k.generic);
      for (const Awaiting& awaiting : awaiting_fence_[agent]) {
        k.tensor.join(awaiting.knowledge.of_tensor_memory());
      }
      return;
    case FenceKind::kTensorBeforeSync: {
      tensor_fences_[agent].push_back(k.generic.at(agent));
      Knowledge covered;
      covered.tensor = k.of_tensor_memory();
      release_at_fence(agent, Scope::kCluster, covered);
      break;
    }
    case FenceKind::kWgmma: wgmma_registers_[agent].fence(); return;
    case FenceKind::kProxyAlias: return;
    case FenceKind::kMbarrierInit: {
      Knowledge covered;
      covered.inits.set(agent, k.generic.at(agent));
      covered.running = k.running;
      release_at_fence(agent, Scope::kCluster, covered);
      break;
    }
    case FenceKind::kMemory:
      if (fence.acquires) acquire_at_fence(agent, fence);
      if (fence.sequential && fence.scope >= Scope::kGpu) sequence_at_fence(agent);
      if (!fence.releases) return;
      if (fence.only_shared) {
        release_at_fence(agent, fence.scope, k.only_shared());
      } else {
        release_all_at_fence(agent, fence.scope);
      }
      break;
  }
  step(agent);
}

// Besides the first, which tells that there was one, a fence matters for the writes that the map
// holds now and that no earlier one of the warp has seen: none has seen those that come later.
void ClusterHazards::note_map_fence(uint32_t agent, uint64_t map) {
  const Knowledge& k = warps_[agent];
  auto& fences = fenced_maps_[agent][map];
  const std::vector<Who> writers = global_.map_writers(cluster_.index, map);
  const auto sees = [&](const Clock& seen) {
    return [&seen](Who writer) { return seen.at(writer.agent()) >= writer.epoch(); };
  };
  if (fences.size() > 1) {
    fences.erase(std::remove_if(fences.begin() + 1, fences.end(),
                                [&](const MapFence& fence) {
                                  return std::none_of(writers.begin(), writers.end(),
                                                      sees(fence.seen));
                                }),
                 fences.end());
  }
  const bool is_news = std::any_of(writers.begin(), writers.end(), [&](Who writer) {
    return sees(k.tensor_maps)(writer) &&
           std::none_of(fences.begin(), fences.end(),
                        [&](const MapFence& fence) { return sees(fence.seen)(writer); });
  });
  if (fences.empty() || is_news) fences.push_back({k.generic.at(agent), k.tensor_maps});
}

// A fence along the path from the write to the copy is enough ("Proxy-preserved base causality
// order"): another warp of the CTA may have executed it before what orders the two.
bool ClusterHazards::fence_of_map(uint32_t agent, uint64_t map,
                                  const std::function<bool(const Clock&)>& sees) const {
  const uint32_t first = agent / warps_per_cta() * warps_per_cta();
  for (uint32_t warp = first; warp < first + warps_per_cta(); ++warp) {
    const auto fenced = fenced_maps_[warp].find(map);
    if (fenced == fenced_maps_[warp].end()) continue;
    const uint32_t known = warps_[agent].generic.at(warp);
    for (const MapFence& fence : fenced->second) {
      if ((warp == agent || known >= fence.epoch) && sees(fence.seen)) return true;
    }
  }
  return false;
}

bool ClusterHazards::sees_tensor_map(uint32_t agent, uint64_t map, Who writer) const {
  return fence_of_map(agent, map,
                      [&](const Clock& seen) { return seen.at(writer.agent()) >= writer.epoch(); });
}

}  // namespace ptxemu
