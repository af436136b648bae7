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

Support query_out_dtype(const AttentionProblem& p, const char* where) {
  if (p.out_dtype == p.dtype) return {};
  return {false, fmt::format("out_dtype {}; accepted {} in this version: {}, the inputs'",
                             name_of(p.out_dtype), where, name_of(p.dtype))};
}

Support query_no_splits(const AttentionProblem& p) {
  if (p.num_splits > 1) {
    return {false, fmt::format("num_splits {}; accepted on a Blackwell GPU in this version: 0, 1",
                               p.num_splits)};
  }
  if (p.split_keys != 0) {
    return {false, fmt::format("split_keys {}; accepted on a Blackwell GPU in this version: 0",
                               p.split_keys)};
  }
  return {};
}

}  // namespace fa4::internal
