// Vector clocks: what an agent knows to have happened.
//
// Components are the warps of a cluster (epochs) and its barriers in shared memory (completed
// phases). An asynchronous operation has no component of its own: it is known to be complete
// through the barrier phase that it signalled, or through the warp that waited for it.
#pragma once

#include <algorithm>
#include <cstdint>
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

// What is known, and of it what the asynchronous proxy also sees (after fence.proxy.async).
struct Knowledge {
  Clock generic, async;
  void join(const Knowledge& other) {
    generic.join(other.generic);
    async.join(other.async);
  }
};

}  // namespace ptxemu
