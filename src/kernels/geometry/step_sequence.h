// The steps of a work tile: the blocks of keys that any of its Q tiles visits, one after the other
// from the last to the first. Host and device.
//
// Two Q tiles of 128 rows under a causal mask (f: first block, l: last, *: between):
//
//   block         5  4  3  2  1  0
//   Q tile 0         f  *  *  *  l
//   Q tile 1      f  *  *  *  *  l
//   middle run             2  1
#pragma once

#include "kernels/base/integers.h"
#include "kernels/geometry/block_range.h"

namespace fa4 {

// Which Q tiles take part in a step, a bit each; for which of those it is the first or the last.
struct Step {
  uint32_t active = 0;
  uint32_t first = 0;
  uint32_t last = 0;

  constexpr bool any() const { return active != 0; }
  constexpr bool operator==(const Step&) const = default;
};

template <int kQTiles>
class StepSequence {
 public:
  static constexpr Step kMiddle = {(1u << kQTiles) - 1, 0, 0};

  // `blocks`: of each Q tile, none or some.
  constexpr explicit StepSequence(const BlockRange* blocks) {
    BlockSpan all = blocks[0];
    for (int i = 0; i < kQTiles; ++i) {
      const BlockSpan b = blocks[i];
      blocks_[i] = b;
      first_[i] = b.is_empty() ? kNone : b.n_block_max - 1;
      const int later = b.n_block_max - 1 - b.n_block_min;
      later_[i] = later > 0 ? later : 0;
      if (i > 0) all = span_of_either(all, b);
    }
    n_ = all.n_block_max - 1;
    n_last_ = all.n_block_min;
  }

  constexpr bool is_done() const { return n_ < n_last_; }
  constexpr int block() const { return n_; }
  constexpr void advance() { --n_; }

  // These say of the current step whether the Q tile is in it, whether for the first time, and
  // whether it was in one before.
  constexpr bool is_active(int q_tile) const { return blocks_[q_tile].contains(n_); }
  constexpr bool is_first(int q_tile) const { return n_ == first_[q_tile]; }
  constexpr bool is_later(int q_tile) const {
    return static_cast<uint32_t>(n_ - blocks_[q_tile].n_block_min) < later_[q_tile];
  }
  constexpr Step step() const {
    Step s;
    for (int i = 0; i < kQTiles; ++i) {
      s.active |= static_cast<uint32_t>(is_active(i)) << i;
      s.first |= static_cast<uint32_t>(n_ == blocks_[i].n_block_max - 1) << i;
      s.last |= static_cast<uint32_t>(n_ == blocks_[i].n_block_min) << i;
    }
    s.first &= s.active;
    s.last &= s.active;
    return s;
  }

  // How many steps from the one at hand on are kMiddle and come after one that is; advances past
  // them. Block n is such a step when for each Q tile n + 1 comes after the first block and n
  // before the last: then n + 1, n and all between are kMiddle. So whoever remembers the step
  // before remembers kMiddle when the run begins, and need not be told anything until it ends.
  constexpr int take_middle_run() {
    int begin = n_last_, end = n_ + 1;  // of the blocks
    for (int i = 0; i < kQTiles; ++i) {
      begin = begin > blocks_[i].n_block_min ? begin : blocks_[i].n_block_min + 1;
      end = end < blocks_[i].n_block_max - 2 ? end : blocks_[i].n_block_max - 2;
    }
    const int count = n_ < end && n_ >= begin ? n_ - begin + 1 : 0;
    n_ -= count;
    return count;
  }

 private:
  static constexpr int kNone = -1;  // no block

  BlockSpan blocks_[kQTiles];
  int first_[kQTiles];       // block of each Q tile
  uint32_t later_[kQTiles];  // blocks of each Q tile but the first
  int n_;                    // the block of the step at hand
  int n_last_;               // of the last step
};

}  // namespace fa4
