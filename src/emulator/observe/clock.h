// Vector clocks: what an agent knows to have happened.
//
// Components are the warps of a cluster (epochs) and its barriers in shared memory (completed
// phases). An asynchronous operation has no component of its own: it is known to be complete
// through the barrier phase that it signalled, or through the warp that waited for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ptxemu {

class Clock {
 public:
  uint32_t at(uint32_t component) const {
    return component < values_.size() ? values_[component] : 0;
  }
  void set(uint32_t component, uint32_t value) {
    if (component >= values_.size()) values_.resize(component + 1, 0);
    values_[component] = value;
  }
  void join(const Clock& other) {
    if (values_.size() < other.values_.size()) values_.resize(other.values_.size(), 0);
    for (size_t i = 0; i < other.values_.size(); ++i) {
      values_[i] = std::max(values_[i], other.values_[i]);
    }
  }
  // A join with `other` would change nothing.
  bool covers(const Clock& other) const {
    for (uint32_t i = 0; i < other.values_.size(); ++i) {
      if (at(i) < other.values_[i]) return false;
    }
    return true;
  }

 private:
  std::vector<uint32_t> values_;
};

// What is known of another cluster; of it what the asynchronous proxy also sees of global memory.
struct ForeignClock {
  Clock generic, async_global;
  void join(const ForeignClock& other) {
    generic.join(other.generic);
    async_global.join(other.async_global);
  }
  bool covers(const ForeignClock& other) const {
    return generic.covers(other.generic) && async_global.covers(other.async_global);
  }
};
using ForeignClocks = std::map<uint64_t, ForeignClock>;  // by the cluster's index
inline void join(ForeignClocks& clocks, const ForeignClocks& other) {
  for (const auto& [cluster, clock] : other) clocks[cluster].join(clock);
}
inline bool covers(const ForeignClocks& clocks, const ForeignClocks& other) {
  return std::all_of(other.begin(), other.end(), [&](const auto& entry) {
    const auto known = clocks.find(entry.first);
    return known != clocks.end() && known->second.covers(entry.second);
  });
}

// Many warps know the same of other clusters: it is shared while it is.
using SharedClocks = std::shared_ptr<const ForeignClocks>;  // null: nothing
// What is known already is not copied: a grid has many clusters, and each may know of all.
inline void join(SharedClocks& clocks, const ForeignClocks& other) {
  if (other.empty() || (clocks != nullptr && covers(*clocks, other))) return;
  auto both = clocks == nullptr ? std::make_shared<ForeignClocks>()
                                : std::make_shared<ForeignClocks>(*clocks);
  join(*both, other);
  clocks = std::move(both);
}
inline void join(SharedClocks& clocks, const SharedClocks& other) {
  if (other == nullptr || other == clocks) return;
  if (clocks == nullptr || covers(*other, *clocks)) {
    clocks = other;  // so that they are the same next time
  } else {
    join(clocks, *other);
  }
}

// What is known. Of it what other proxies see, too: the asynchronous one of shared and of global
// memory (after fence.proxy.async), the one of tensor maps (after fence.proxy.tensormap); and what
// later tcgen05 operations come after (tcgen05.fence).
struct Knowledge {
  Clock generic, async_shared, async_global, tensor_maps;
  // Of tensor memory, behind tcgen05.fence::after_thread_sync: of what `generic` knows, and of what
  // relaxed arrivals passed on.
  Clock tensor;
  // Known beyond `generic`: of shared memory alone (.sync_restrict), and of mbarrier.init alone
  // (fence.mbarrier_init).
  Clock shared, inits;
  uint32_t running = 0;  // the ranks of the cluster's CTAs that are known to run
  SharedClocks foreign;
  // Fences of the kind .sc have one order ("Fence-SC order"), so that what one covers is known
  // behind another when something before the latter has read what was written after the former.
  // Of clusters, the own one too: what fences before here covered, and what those before the
  // writes that have been read from did, which counts behind the next such fence.
  SharedClocks sequenced, read_sequenced;
  bool earlier_grids_over = false;  // griddepcontrol.wait has passed

  void join(const Knowledge& other) {
    generic.join(other.generic);
    async_shared.join(other.async_shared);
    async_global.join(other.async_global);
    tensor_maps.join(other.tensor_maps);
    tensor.join(other.tensor);
    shared.join(other.shared);
    inits.join(other.inits);
    running |= other.running;
    earlier_grids_over |= other.earlier_grids_over;
    ptxemu::join(foreign, other.foreign);
    ptxemu::join(sequenced, other.sequenced);
    ptxemu::join(read_sequenced, other.read_sequenced);
  }
  // What a cluster with the index `own` learns of itself and of others.
  void join_clusters(const ForeignClocks& other, uint64_t own) {
    ptxemu::join(foreign, other);
    const auto of_own = other.find(own);
    if (of_own == other.end()) return;
    generic.join(of_own->second.generic);
    async_global.join(of_own->second.async_global);
  }
  // What is known of shared memory is now seen by the asynchronous proxy.
  void show_shared_to_async() {
    async_shared.join(generic);
    async_shared.join(shared);
  }
  // What it is of other clusters is now seen by the asynchronous proxy.
  void show_foreign_to_async() {
    const auto is_shown = [](const auto& entry) {
      return entry.second.async_global.covers(entry.second.generic);
    };
    if (foreign == nullptr || std::all_of(foreign->begin(), foreign->end(), is_shown)) return;
    auto seen = std::make_shared<ForeignClocks>(*foreign);
    for (auto& [cluster, clock] : *seen) clock.async_global.join(clock.generic);
    foreign = std::move(seen);
  }
  // What of it concerns tensor memory alone (tcgen05.fence).
  Clock of_tensor_memory() const {
    Clock both = generic;
    both.join(tensor);
    return both;
  }
  // What of it concerns shared memory alone (fence with .sync_restrict).
  Knowledge only_shared() const {
    Knowledge part;
    part.shared = generic;
    part.shared.join(shared);
    part.async_shared = async_shared;
    part.inits = inits;
    part.running = running;
    return part;
  }
};

inline bool covers(const SharedClocks& clocks, const SharedClocks& other) {
  return other == nullptr || (clocks != nullptr && (clocks == other || covers(*clocks, *other)));
}
// Joining `other` would change nothing.
inline bool covers(const Knowledge& k, const Knowledge& other) {
  return k.generic.covers(other.generic) && k.async_shared.covers(other.async_shared) &&
         k.async_global.covers(other.async_global) && k.tensor_maps.covers(other.tensor_maps) &&
         k.tensor.covers(other.tensor) && k.shared.covers(other.shared) &&
         k.inits.covers(other.inits) && (other.running & ~k.running) == 0 &&
         (k.earlier_grids_over || !other.earlier_grids_over) && covers(k.foreign, other.foreign) &&
         covers(k.sequenced, other.sequenced) && covers(k.read_sequenced, other.read_sequenced);
}

// What a word that is released to tells its readers. What the first release tells is shared with
// the other words that the same statement releases to, and with those after it that tell no less;
// only what several tell has its own copy.
template <class T>
class Told {
 public:
  bool none() const { return shared_ == nullptr && own_ == nullptr; }
  bool is_shared() const { return own_ == nullptr; }
  const T& all() const { return own_ != nullptr ? *own_ : *shared_; }  // there must be some
  void add(std::shared_ptr<const T> told) {
    if (told == shared_) return;
    if (own_ != nullptr) {
      tell(*own_, *told);
    } else if (shared_ == nullptr || covers(*told, *shared_)) {
      shared_ = std::move(told);
    } else {
      own_ = std::make_unique<T>(*shared_);
      tell(*own_, *told);
      shared_ = nullptr;
    }
  }
  T& own() { return *own_; }  // unless is_shared()
  void clear() {
    shared_ = nullptr;
    own_ = nullptr;
  }

 private:
  static void tell(Knowledge& knows, const Knowledge& told) { knows.join(told); }
  static void tell(ForeignClocks& knows, const ForeignClocks& told) { join(knows, told); }
  std::shared_ptr<const T> shared_;
  std::unique_ptr<T> own_;
};

// The words that a warp has read, by address, each with the number (1, 2 ...) of the latest release
// to it that the warp has heard of. A word that nobody has released to since has nothing new to
// tell: a warp that polls learns once.
class Heard {
 public:
  bool knows(uint64_t word, uint64_t release) const {
    const auto last = last_.find(word);
    return last != last_.end() && last->second == release;
  }
  void note(uint64_t word, uint64_t release) { last_[word] = release; }
  // The warp's own release tells it nothing that it did not know.
  void note_own(uint64_t word, uint64_t release) {
    if (knows(word, release - 1)) note(word, release);
  }
  // What `other` has heard of, later.
  void take(const Heard& other) {
    for (const auto& [word, release] : other.last_) note(word, release);
  }

 private:
  std::unordered_map<uint64_t, uint64_t> last_;
};

}  // namespace ptxemu
