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

// A tensor with a row of `columns` elements a token, and where its rows begin.
struct Rows {
  Address at;
  int64_t columns = 0;
  int64_t bytes = 0;  // of an element
  Address row(int64_t index) const { return at + static_cast<size_t>(index * columns * bytes); }
};

// Hands out places of 256-byte aligned tensors one behind the other, from `first_byte` on, which is
// a multiple of 256.
class Room {
 public:
  Room(Place place, int64_t first_byte) : place_(place), end_(first_byte) {}
  Address take(int64_t bytes) {
    const Address address{place_, static_cast<size_t>(end_)};
    end_ += (bytes + 255) / 256 * 256;
    return address;
  }
  // Where the last one ends.
  int64_t end() const { return end_; }

 private:
  Place place_;
  int64_t end_;
};

}  // namespace fa4::internal
