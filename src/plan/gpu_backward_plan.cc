#include "plan/gpu_backward_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rounding.h"
#include "plan/gpu_plan.h"

namespace fa4::internal {
namespace {

// CTAs of a launch are numbered in 31 bits.
constexpr int64_t kMaxCtas = (int64_t{1} << 31) - (int64_t{1} << 20);

std::string check_strides_of_gradients(const AttentionProblem& p) {
  const int gradient_bytes = size_of(p.grad_dtype);
  const bool packed_q = p.layout_q == Layout::kPacked, packed_k = p.layout_kv == Layout::kPacked;
  const int64_t rows_q = packed_q ? p.total_q : p.seqlen_q;
  const int64_t rows_k = packed_k ? p.total_k : p.seqlen_k;
  for (const std::string& problem :
       {check_gpu_strides("dout", p.dout, 2, p.batch, rows_q, p.heads_q, packed_q),
        check_gpu_strides("dq", p.dq, gradient_bytes, p.batch, rows_q, p.heads_q, packed_q),
        check_gpu_strides("dk", p.dk, gradient_bytes, p.batch, rows_k, p.heads_kv, packed_k),
        check_gpu_strides("dv", p.dv, gradient_bytes, p.batch, rows_k, p.heads_kv, packed_k)}) {
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace

Support query_gpu_backward_support(const AttentionProblem& p, int keys) {
  const auto no = [](std::string reason) { return Support{false, std::move(reason)}; };
  if (const Support common = query_gpu_support(p); !common.supported) return common;
  // Subgroups are works of their own.
  if (query_ctas(p) + p.heads_q >= kMaxCtas || key_blocks(p, keys) >= kMaxCtas / (2 * p.group())) {
    return no(fmt::format(
        "batch {} with heads_q {} and seqlen_q {}, heads_kv {} and seqlen_k {}; "
        "accepted on a GPU: below 2^31 - 2^20 blocks of {} queries of all heads, and as "
        "many blocks of {} keys, each counted 2 * (heads_q / heads_kv) times",
        p.batch, p.heads_q, p.seqlen_q, p.heads_kv, p.seqlen_k, kQueryRows, keys));
  }
  const std::string strides = check_strides_of_gradients(p);
  return strides.empty() ? Support{} : no(strides);
}

std::vector<KernelStep> gpu_backward_steps(const AttentionProblem& p, const BackwardShape& shape) {
  const Element element = element_of(p);
  const int64_t queries = query_ctas(p);
  int64_t ctas = all_works(p, shape);
  if (shape.persistent_ctas > 0) ctas = std::min<int64_t>(ctas, shape.persistent_ctas);
  return {{.source = preprocess_source(element, shape.statistics),
           .params = KernelParams::kBackward,
           .grid = static_cast<int>(queries),
           .threads = kPreprocessThreads},
          {.source = shape.source,
           .params = KernelParams::kBackward,
           .grid = static_cast<int>(ctas),
           .threads = shape.threads,
           .cluster = shape.cluster,
           .smem_bytes = shape.smem_bytes},
          {.source = postprocess_source(element, shape.dq_layout),
           .params = KernelParams::kBackward,
           .grid = static_cast<int>(queries + (p.has_sink ? p.heads_q : 0)),
           .threads = kPostprocessThreads}};
}

WorkspaceLayout gpu_backward_workspace(const AttentionProblem& p, const BackwardShape& shape,
                                       const BwdOrder& order) {
  const int64_t rows = workspace_rows(p);
  WorkspaceLayout layout;
  if (shape.statistics == StatisticForm::kRows) {
    layout.add(kRowDelta, rows * 4);
  } else {
    layout.add(kStatisticTerms, rows * static_cast<int64_t>(sizeof(StatisticTerms)));
  }
  if (shape.statistics != StatisticForm::kParts) layout.add(kNegLseLog2, rows * 4);
  layout.add(kDqSums, rows * 4 * shape.head_dim);
  if (p.has_sink) layout.add(kDsinkParts, query_ctas(p) * 4);
  if (shape.subgroups > 1) {
    const int64_t places =
        p.heads_kv * subgroup_key_blocks(p) * num_nodes(shape.subgroups, p.deterministic);
    layout.add(kGroupSums, places * subgroup_floats(shape) * 4);
    layout.add(kGroupCounts,
               places * kSubgroupUnits * static_cast<int64_t>(sizeof(SubgroupCounts)));
  }
  if (order.first_stores != 0) layout.add(kDqCounts, rows / kQueryRows * 4);
  if (p.deterministic || shape.persistent_ctas > 0) layout.add(kTicket, 4);
  if (order.finish_behind != 0) layout.add(kEndedCounts, int64_t{order.sections} * 4);
  if (shape.first_stores && order.first_stores == 0 && order.sections > kSectionsAhead) {
    layout.add(kClearedCounts, int64_t{order.sections} * 4);
  }
  return layout;
}

KernelSource preprocess_source(Element element, StatisticForm form) {
  struct Name {
    const char *enumerator, *in_display_name;
  };
  static constexpr Name kNames[] = {
      {"kRows", "_rows"}, {"kParts", "_parts"}, {"kPartOfDelta", "_part"}};
  const Name& name = kNames[static_cast<int>(form)];
  return {
      .main_file = "backward/preprocess.cuh",
      .name_expression = fmt::format("fa4::bwd_preprocess<fa4::BwdRowTraits{{.element={}, "
                                     ".statistics=fa4::StatisticForm::{}}}>",
                                     enumerator(element), name.enumerator),
      .display_name = fmt::format("bwd_preprocess{}_{}", name.in_display_name, name_of(element))};
}

KernelSource postprocess_source(Element element, DqLayout layout) {
  const bool rows = layout == DqLayout::kRows;
  return {
      .main_file = "backward/postprocess.cuh",
      .name_expression = fmt::format(
          "fa4::bwd_postprocess<fa4::BwdRowTraits{{.element={}, .dq_layout={}}}>",
          enumerator(element), rows ? "fa4::DqLayout::kRows" : "fa4::DqLayout::kFragments"),
      .display_name = fmt::format("bwd_postprocess{}_{}", rows ? "_rows" : "", name_of(element))};
}

}  // namespace fa4::internal
