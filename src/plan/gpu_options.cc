#include "plan/gpu_options.h"

#include <fmt/format.h>

namespace fa4::internal {

Support query_gpu_options(const AttentionProblem& p) {
  if (p.is_quantised()) {
    return {false, fmt::format("kv_dtype {}; accepted on a GPU in this version: 0 (dtype, {})",
                               name_of(p.kv_dtype), name_of(p.dtype))};
  }
  if (p.prefix_len != 0) {
    return {false,
            fmt::format("prefix_len {}; accepted on a GPU in this version: 0", p.prefix_len)};
  }
  if (p.page_table_heads > 1) {
    return {false, fmt::format("page_table_heads {}; accepted on a GPU in this version: 0, 1",
                               p.page_table_heads)};
  }
  return {};
}

}  // namespace fa4::internal
