#include "plan/gpu_options.h"

#include <fmt/format.h>

namespace fa4::internal {

Support query_gpu_options(const AttentionProblem& p) {
  if (p.out_dtype != p.dtype) {
    return {false, fmt::format("out_dtype {}; accepted on a GPU in this version: {}, the inputs'",
                               name_of(p.out_dtype), name_of(p.dtype))};
  }
  return {};
}

}  // namespace fa4::internal
