// Which stage of a ring is next, where the number of stages is no power of two; producer and
// consumers each keep their own.
#pragma once

#include "kernels/base/integers.h"

namespace fa4::sm100 {

template <int kStages>
struct RingState {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    ++stage;
    if (stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

}  // namespace fa4::sm100
