#include "plan/cpu_backward_spec.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"

namespace fa4::internal {

bool isa_supports_backward(CpuIsa isa, DType) { return isa == CpuIsa::kScalar; }

CpuBackwardSpec plan_cpu_backward(const AttentionProblem& problem, const DeviceSpec& device,
                                  int num_threads, std::optional<CpuIsa> forced) {
  CpuBackwardSpec spec;
  spec.isa = forced.value_or(CpuIsa::kScalar);
  if (!has_isa(device.cpu, spec.isa) || !isa_supports_backward(spec.isa, problem.dtype)) {
    throw Error(ErrorCode::kNotSupported,
                fmt::format("cpu_isa {} for the backward in {} on {}; accepted: scalar",
                            name_of(spec.isa), name_of(problem.dtype), device.model));
  }
  spec.tile_m = spec.tile_n = 16;
  spec.num_threads = std::max(1, num_threads > 0 ? num_threads : device.num_threads);
  return spec;
}

WorkspaceLayout cpu_backward_workspace(const AttentionProblem& problem, const CpuBackwardSpec&) {
  WorkspaceLayout layout;
  layout.add(kDelta, problem.lse_elements() * 4);
  return layout;
}

}  // namespace fa4::internal
