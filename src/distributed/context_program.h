// What a method makes of a problem: the attention that a rank calls, and the steps around it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rounding.h"
#include "distributed/program.h"
#include "plan/steps.h"
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

// Adds so many rows of f32 terms to sums.
inline SumStep add_step(Address terms, Address sums, int64_t rows, int64_t columns) {
  return {.parts = sums,
          .to = sums,
          .second = terms,
          .num_parts = 2,
          .rows = rows,
          .columns = columns,
          .part_pitch = columns,
          .to_pitch = columns,
          .to_type = DType::kF32};
}

// Zeros for rows [first, end), if there are any.
inline void zero_rows(const Rows& rows, int64_t first, int64_t end, std::vector<Work>& works) {
  if (first >= end) return;
  const int64_t bytes = (end - first) * rows.columns * rows.bytes;
  works.push_back(ZeroStep{rows.row(first), static_cast<size_t>(bytes)});
}

// Hands out places of tensors one behind the other, from `first_byte` on. Each begins at a multiple
// of kWorkspaceAlignment, as `first_byte` does.
class Room {
 public:
  Room(Place place, int64_t first_byte) : place_(place), end_(first_byte) {}
  Address take(int64_t bytes) {
    const Address address{place_, static_cast<size_t>(end_)};
    end_ += round_up(bytes, kWorkspaceAlignment);
    return address;
  }
  // Where the last one ends.
  int64_t end() const { return end_; }

 private:
  Place place_;
  int64_t end_;
};

// dsink of so many heads, the sum of what each of several calls writes.
class SinkGradient {
 public:
  // At most so many calls.
  SinkGradient(Room& room, int64_t heads, int most_calls)
      : heads_(heads),
        stride_(round_up(heads * kFloatBytes, kWorkspaceAlignment)),
        terms_(room.take(most_calls * stride_)) {}

  // Where the next call leaves its terms.
  Address place() { return terms_ + static_cast<size_t>(calls_++ * stride_); }
  SumStep add_up(Address dsink) const {
    return {.parts = terms_,
            .to = dsink,
            .part_stride = stride_,
            .num_parts = calls_,
            .rows = 1,
            .columns = heads_,
            .part_pitch = heads_,
            .to_pitch = heads_,
            .to_type = DType::kF32};
  }

 private:
  int64_t heads_, stride_;
  Address terms_;
  int calls_ = 0;
};

}  // namespace fa4::internal
