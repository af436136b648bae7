// What a method makes of a problem: the attention that a rank calls, and the steps around it.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/program.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

struct ContextProgram {
  std::vector<AttentionProblem> calls;
  Program program;
  Program without_lse;        // of a forward whose lse is not wanted
  int64_t whole_bytes = 0;    // of Place::kWhole
  int64_t staging_bytes = 0;  // of Place::kStaging
};

// Hands out places of 256-byte aligned tensors one behind the other.
class Room {
 public:
  explicit Room(Place place) : place_(place) {}
  Address take(int64_t bytes) {
    const Address address{place_, static_cast<size_t>(bytes_)};
    bytes_ += (bytes + 255) / 256 * 256;
    return address;
  }
  int64_t bytes() const { return bytes_; }

 private:
  Place place_;
  int64_t bytes_ = 0;
};

}  // namespace fa4::internal
