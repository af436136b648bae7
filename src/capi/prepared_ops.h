// The operations that a device keeps for the functions that do all steps in one call.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "fa4/fa4.h"

namespace fa4::internal {

// Problems are compared byte by byte.
static_assert(sizeof(fa4_problem) == 496, "fa4_problem has padding");

// Those of the last 64 problems, the last used first. Any thread may use it.
template <class Op>
class PreparedOps {
 public:
  // Null when there is none.
  std::shared_ptr<const Op> find(const fa4_problem& problem) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(ops_.begin(), ops_.end(), [&](const auto& entry) {
      return std::memcmp(&entry.problem, &problem, sizeof(problem)) == 0;
    });
    if (found == ops_.end()) return nullptr;
    std::rotate(ops_.begin(), found, found + 1);
    return ops_.front().op;
  }

  void keep(const fa4_problem& problem, const std::shared_ptr<const Op>& op) {
    const std::lock_guard lock(mutex_);
    ops_.reserve(kMost + 1);
    ops_.insert(ops_.begin(), {problem, op});
    if (ops_.size() > kMost) ops_.pop_back();
  }

 private:
  static constexpr size_t kMost = 64;
  struct Prepared {
    fa4_problem problem;
    std::shared_ptr<const Op> op;
  };
  std::mutex mutex_;
  std::vector<Prepared> ops_;
};

}  // namespace fa4::internal
