// The one parameter of the forward kernels: filled from a plan and one execution's arguments, and
// described for tools that fill one themselves.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/forward/params.h"
#include "plan/forward_plan.h"
#include "problem/forward_args.h"

namespace fa4::internal {

// Everything but the tensor maps, which a device encodes. `tile_counter`: in the workspace, or
// null.
FwdParams forward_params(const AttentionProblem& problem, const TileSchedule& schedule,
                         const ForwardArgs& args, void* tile_counter);

// Parts that the backward fills in likewise.
SequenceParams sequence_params(const AttentionProblem& problem, const SequenceArgs& args);
MaskParams mask_params(const MaskSpec& mask);
// The factor of a score: finite, since 0 times infinity is NaN.
float finite_float(double factor);

struct ParamsField {
  std::string name;
  const char* type;  // "tensor_map", "ptr", "i64", "i32", "f32"
  size_t offset;     // bytes
};

// A parameter's memory, member by member; of the backward's the size alone.
struct ParamsLayout {
  const char* name;
  size_t bytes;
  std::vector<ParamsField> fields;
};
ParamsLayout params_layout(KernelParams params);

}  // namespace fa4::internal
