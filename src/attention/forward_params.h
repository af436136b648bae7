// The one parameter of the forward kernels, filled from a plan and one execution's arguments.
#pragma once

#include "kernels/forward/params.h"
#include "plan/forward_plan.h"
#include "problem/forward_args.h"

namespace fa4::internal {

// Everything but the tensor maps, which a device encodes, and places in the workspace.
FwdParams forward_params(const AttentionProblem& problem, const GpuTiling& tiling,
                         const ForwardArgs& args);

// How many elements of k and v are in 16 bits: GPUs move bytes in pairs.
int64_t elements_per_16_bits(const AttentionProblem& problem);

// Members that appending and the backward fill in likewise. Where pages lie, but for boxes and
// rows.
PageParams page_table_params(const AttentionProblem& problem, const SequenceArgs& args);
// By which a key's number is shifted to find its descale, where that is not its page's.
int32_t descale_shift(const AttentionProblem& problem);
SequenceParams sequence_params(const AttentionProblem& problem, const SequenceArgs& args);
MaskParams mask_params(const MaskSpec& mask);
FloatType float_type(DType dtype);
// The factor of a score: finite, since 0 times infinity is NaN.
float finite_float(double factor);
// The polynomial of scores that are small beside softcap, as multiples of `unit`.
NearCap near_cap(double scale_over_softcap, double unit);

}  // namespace fa4::internal
