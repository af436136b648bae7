// How a GPU appends to a cache: one launch of one kernel.
#pragma once

#include "core/device_spec.h"
#include "plan/forward_plan.h"
#include "problem/append_args.h"

namespace fa4::internal {

// Whether `device` appends such rows to such a cache, and the reason when it does not. `args` are
// completed.
Support query_append_support(const AttentionProblem& problem, const AppendArgs& args,
                             const DeviceSpec& device);

// `is_quantised`: into a cache of e4m3.
KernelSource append_source(Element element, bool is_quantised);

// What a CTA takes: several rows, or a part of one.
struct AppendTiling {
  int pieces = 0;  // of 16 bytes, of a row: all heads, k and v
  int rows_per_cta = 1;
  int ctas_per_row = 1;
};
AppendTiling append_tiling(const AttentionProblem& problem);

}  // namespace fa4::internal
