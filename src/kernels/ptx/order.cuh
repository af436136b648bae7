// Telling ptxas what comes after what, where no data does.
#pragma once

#include "kernels/ptx/math.cuh"
#include "kernels/ptx/sync.cuh"

namespace fa4::ptx {

// add.rn.ftz.f32 d, value, lane;  `value`, from when the election is over
// PTX ISA, "add", sm_20
//
// ptxas moves arithmetic freely across an arrival, whose "memory" clobber orders accesses alone: it
// would begin what is wanted after the arrival before it, and the arrival would be late. What is
// computed from the result cannot begin before the vote. The lane's number as a float is a
// denormal, which .ftz takes for 0, so that no bit changes. It costs an addition a block; without
// it the softmax hands the first keys of P over 1066 clocks after S instead of 900, and takes ten
// registers more (pipe_budget, head_dim 128 with one Q tile, ptxas 13.0).
__device__ inline float order_after(Election vote, float value) {
  return add_rn_ftz(value, __uint_as_float(vote.lane));
}

}  // namespace fa4::ptx
