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

 private:
  std::vector<uint32_t> values_;
};

// What is known of other clusters, by their index.
using ForeignClocks = std::map<uint64_t, Clock>;
inline void join(ForeignClocks& clocks, const ForeignClocks& other) {
  for (const auto& [cluster, clock] : other) clocks[cluster].join(clock);
}

// What is known; of it what the asynchronous proxy also sees of shared and of global memory (after
// fence.proxy.async), and what later tcgen05 operations come after (tcgen05.fence).
struct Knowledge {
  Clock generic, async_shared, async_global, tensor;
  std::shared_ptr<const ForeignClocks> foreign;  // null: of no other cluster
  bool earlier_grids_over = false;               // griddepcontrol.wait has passed

  void join(const Knowledge& other) {
    generic.join(other.generic);
    async_shared.join(other.async_shared);
    async_global.join(other.async_global);
    tensor.join(other.tensor);
    earlier_grids_over |= other.earlier_grids_over;
    if (other.foreign != nullptr && other.foreign != foreign) join_foreign(*other.foreign);
  }
  void join_foreign(const ForeignClocks& other) {
    auto both = foreign == nullptr ? std::make_shared<ForeignClocks>()
                                   : std::make_shared<ForeignClocks>(*foreign);
    ptxemu::join(*both, other);
    foreign = std::move(both);
  }
};

}  // namespace ptxemu
