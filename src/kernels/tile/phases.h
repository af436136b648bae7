// Which phase of its barriers a role waits for next. Host and device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

// Stands for a number of stages where the role knows one barrier of each kind, whichever stage that
// is.
inline constexpr int kOneStage = 0;

// The role waits for every phase, in turn, of kStages barriers of each of these kinds. `kStartFree`
// is BarrierTable::start_free().
template <uint32_t kStartFree, int kStages, int... kKinds>
class Phases {
 public:
  // One turn of a barrier. Barriers that have a phase for each of its phases need no bits of their
  // own: they are waited for with the same.
  struct Phase {
    uint32_t is_odd;  // the first is 0

    // Returns when it has completed. Parities follow the turns, but where a barrier starts free its
    // first wait is for the phase before the first, which has parity 1 and counts as completed.
    template <class Context>
    constexpr void wait(const Context& context, int kind, int stage = 0) const {
      context.wait(kind, stage, is_odd ^ (kStartFree >> kind & 1));
    }
  };

  constexpr Phase next(int kind, int stage = 0) {
    uint32_t& word = words_[kPacked ? 0 : index_of(kind)];
    const int bit = kPacked ? index_of(kind) * kStages + stage : 0;
    const Phase phase{kPacked ? word >> bit & 1 : word};
    word ^= 1u << bit;
    return phase;
  }

  template <class Context>
  constexpr void wait(const Context& context, int kind, int stage = 0) {
    next(kind, stage).wait(context, kind, stage);
  }

 private:
  static constexpr int kCount = sizeof...(kKinds);
  // A bit for each barrier in one register. With one stage a register for each kind, which is the
  // parity itself: the softmax waits in every block.
  static constexpr bool kPacked = kStages != kOneStage;
  static_assert(kStages * kCount <= 32);

  static constexpr int index_of(int kind) {
    int index = 0;
    const bool is_one = ((index += kind != kKinds, kind == kKinds) || ...);
    return is_one ? index : kCount;
  }

  uint32_t words_[kPacked ? 1 : kCount] = {};
};

}  // namespace fa4
