#include "plan/backward_shape.h"

#include <algorithm>

#include "core/rounding.h"

namespace fa4::internal {
namespace {

// CTAs for the same block of keys.
int64_t ctas_of_keys(const BackwardShape& shape) {
  return int64_t{shape.cluster} * shape.works_per_block;
}

}  // namespace

int64_t query_ctas(const AttentionProblem& p) { return p.batch * p.heads_q * query_blocks(p); }
int64_t key_blocks(const AttentionProblem& p, int keys) {
  return capped_product(p.batch * p.heads_kv, ceil_div(p.seqlen_k, keys));
}

int64_t key_heads(const AttentionProblem& p, const BackwardShape& shape) {
  return p.heads_kv * shape.subgroups;
}

int64_t all_works(const AttentionProblem& p, const BackwardShape& shape) {
  return key_blocks(p, shape.keys) * shape.subgroups * ctas_of_keys(shape);
}

int64_t works_of_head(const AttentionProblem& p, const BackwardShape& shape) {
  return std::max<int64_t>(ctas_of_keys(shape) * ceil_div(p.seqlen_k, shape.keys), 1);
}

int64_t workspace_rows(const AttentionProblem& p) {
  const bool packed = p.layout_q == Layout::kPacked;
  return kQueryRows * (packed ? p.heads_q * head_blocks(p) : query_ctas(p));
}

int64_t query_blocks(const AttentionProblem& p) { return ceil_div(p.seqlen_q, kQueryRows); }

// A packed sequence begins at a block of its own: at most one more each.
int64_t head_blocks(const AttentionProblem& p) {
  return p.layout_q == Layout::kPacked ? ceil_div(p.total_q, kQueryRows) + p.batch
                                       : query_blocks(p);
}

int64_t subgroup_key_blocks(const AttentionProblem& p) {
  return p.layout_kv == Layout::kPacked ? p.total_k / kSubgroupKeys + p.batch
                                        : p.batch * ceil_div(p.seqlen_k, kSubgroupKeys);
}
int64_t subgroup_floats(const BackwardShape& shape) {
  return int64_t{kSubgroupKeys} * (shape.head_dim + shape.head_dim_v);
}

}  // namespace fa4::internal
