#include "plan/gpu_options.h"

#include <fmt/format.h>

namespace fa4::internal {

Support query_gpu_options(const AttentionProblem& p) {
  if (!p.is_quantised()) return {};
  return {false, fmt::format("kv_dtype {}; accepted on a GPU in this version: 0 (dtype, {})",
                             name_of(p.kv_dtype), name_of(p.dtype))};
}

}  // namespace fa4::internal
