// Which CPU path runs a backward, with which tiles and how many threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plan/cpu_kernel_spec.h"
#include "plan/steps.h"

namespace fa4::internal {

struct CpuBackwardSpec {
  CpuIsa isa = CpuIsa::kScalar;
  int tile_m = 0;  // queries of a task
  int tile_n = 0;  // keys of a task
  int num_threads = 1;
};

// Whether `isa` has a backward for `dtype`.
bool isa_supports_backward(CpuIsa isa, DType dtype);

// As plan_cpu, for the backward.
CpuBackwardSpec plan_cpu_backward(const AttentionProblem& problem, const DeviceSpec& device,
                                  int num_threads, std::optional<CpuIsa> forced = {});

// f32, shaped like lse: rowsum(dout o out) - dlse of each row.
inline constexpr std::string_view kDelta = "delta";

WorkspaceLayout cpu_backward_workspace(const AttentionProblem& problem,
                                       const CpuBackwardSpec& spec);

}  // namespace fa4::internal
