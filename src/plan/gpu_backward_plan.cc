#include "plan/gpu_backward_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rounding.h"
#include "plan/gpu_plan.h"

namespace fa4::internal {
namespace {

// CTAs of a launch are numbered in 31 bits.
constexpr int64_t kMaxCtas = (int64_t{1} << 31) - (int64_t{1} << 20);
// Of the L2 cache: Q, dO and dq's sums of the heads in flight. Beyond the cache sums fall to the
// rate of DRAM, a third (docs/kernels/hopper_rates.md has the L2's); an H200's is two halves, each
// of which keeps what its SMs read, and what is dirty waits there to be written.
constexpr double kL2ShareForQueries = 0.27;
// The same where works clear the sums of later sections, and heads have few works or equal ones:
// zeros that wait long for their first addition are written to DRAM meanwhile. Long heads under a
// mask, of which there is less to clear, are faster the old way
// (docs/kernels/bwd_sm90_experiments.md, "Zeros a little ahead").
constexpr double kL2ShareWithZeros = 0.08;
constexpr int64_t kWorksOfLongHead = 32;
// Works of an SM. Under a mask, longest first, the long ones of the last section go on when others
// have ended. That weighs where there are fewer than kFewWorks in all: a section then has so many
// at least (docs/kernels/bwd_sm90_experiments.md, "The last section").
constexpr int64_t kFewWorks = 24, kFewWorksOfSection = 2;
// Heads of fewer works than these: half as many, so that the sums of a section stay in the cache.
constexpr int64_t kWorksOfShortHead = 24, kFewWorksOfShortHeads = 1;

int64_t query_ctas(const AttentionProblem& p) { return p.batch * p.heads_q * query_blocks(p); }
int64_t key_blocks(const AttentionProblem& p, int keys) {
  return capped_product(p.batch * p.heads_kv, ceil_div(p.seqlen_k, keys));
}

// CTAs for the same block of keys.
int64_t ctas_of_keys(const BackwardShape& shape) { return int64_t{shape.cluster} * shape.parts; }

int64_t works_of_head(const AttentionProblem& p, const BackwardShape& shape) {
  return std::max<int64_t>(ctas_of_keys(shape) * ceil_div(p.seqlen_k, shape.keys), 1);
}

// Key heads, each as often as its group has parts.
int64_t key_heads(const AttentionProblem& p, const BackwardShape& shape) {
  return std::max<int64_t>(p.heads_kv * p.batch * shape.group_parts, 1);
}

// For a section's queries; 0: a head at a time.
double l2_share(const AttentionProblem& p, const BackwardShape& shape, const TurnRow& turns) {
  const bool is_full = p.mask.is_full();
  if (p.deterministic) return is_full ? 0.0 : turns.l2_share;
  if (shape.clears_sums && (is_full || works_of_head(p, shape) < kWorksOfLongHead)) {
    return kL2ShareWithZeros;
  }
  return is_full ? 0.0 : kL2ShareForQueries;
}

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

int64_t query_blocks(const AttentionProblem& p) { return ceil_div(p.seqlen_q, kQueryRows); }

// A sequence begins at a block of its own: at most one more each.
int64_t packed_head_blocks(const AttentionProblem& p) {
  return ceil_div(p.total_q, kQueryRows) + p.batch;
}

int64_t part_key_blocks(const AttentionProblem& p) {
  return p.layout_kv == Layout::kPacked ? p.total_k / kPartKeys + p.batch
                                        : p.batch * ceil_div(p.seqlen_k, kPartKeys);
}
int64_t part_floats(const BackwardShape& shape) {
  return int64_t{kPartKeys} * (shape.head_dim + shape.head_dim_v);
}

Support query_gpu_backward_support(const AttentionProblem& p, int keys) {
  const auto no = [](std::string reason) { return Support{false, std::move(reason)}; };
  if (const Support common = query_gpu_support(p); !common.supported) return common;
  // Parts of groups are works of their own.
  if (query_ctas(p) + p.heads_q >= kMaxCtas || key_blocks(p, keys) >= kMaxCtas / (2 * p.group())) {
    return no(
        fmt::format("batch {} with heads_q {} and seqlen_q {}, heads_kv {} and seqlen_k {}; "
                    "accepted on a GPU: below 2^31 - 2^20 blocks of 64 queries or 128 keys",
                    p.batch, p.heads_q, p.seqlen_q, p.heads_kv, p.seqlen_k));
  }
  const std::string strides = check_strides_of_gradients(p);
  return strides.empty() ? Support{} : no(strides);
}

int choose_backward_sections(const AttentionProblem& p, const DeviceSpec& device,
                             const BackwardShape& shape, const TurnRow& turns) {
  const int64_t heads = key_heads(p, shape), group = p.group() / shape.group_parts;
  const int64_t works = works_of_head(p, shape);
  const double row_bytes =
      2.0 * static_cast<double>(p.head_dim + p.head_dim_v) + 4.0 * shape.head_dim;
  const double head_bytes = std::max(1.0, row_bytes * static_cast<double>(group * p.seqlen_q));
  auto section = static_cast<int64_t>(l2_share(p, shape, turns) *
                                      static_cast<double>(device.l2_bytes) / head_bytes);
  if (!p.mask.is_full() && !last_keys_first(p) && heads * works < kFewWorks * device.num_sms) {
    const int64_t few = works < kWorksOfShortHead ? kFewWorksOfShortHeads : kFewWorksOfSection;
    section = std::max(section, ceil_div(few * device.num_sms, works));
  }
  const int columns = last_keys_first(p) ? turns.columns_last_first : turns.columns;
  if (p.deterministic && columns > 0) {
    // So many heads at once that a head's CTAs begin a turn after one another, and none waits.
    const int64_t steps = std::max<int64_t>(group * query_blocks(p), 1);
    section = std::max(section, ceil_div(int64_t{shape.head_dim + columns} * device.num_sms,
                                         int64_t{shape.head_dim} * steps));
  }
  return static_cast<int>(ceil_div(heads, std::clamp<int64_t>(section, 1, heads)));
}

// CTAs take turns to add to dq. Where a row sees no keys far behind it, the last keys' CTAs are
// those that see few rows, and each comes to a block after those behind it have been there.
bool last_keys_first(const AttentionProblem& p) {
  return p.deterministic && p.mask.is_bounded_right();
}

std::vector<KernelStep> gpu_backward_steps(const AttentionProblem& p, const BackwardShape& shape) {
  const Element element = element_of(p);
  const int64_t queries = query_ctas(p);
  int64_t ctas = key_blocks(p, shape.keys) * shape.group_parts * ctas_of_keys(shape);
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
                                       int sections) {
  const bool packed = p.layout_q == Layout::kPacked;
  const int64_t rows = kQueryRows * (packed ? p.heads_q * packed_head_blocks(p) : query_ctas(p));
  WorkspaceLayout layout;
  if (shape.statistics == StatisticForm::kParts) {
    layout.add(kStatisticParts, rows * static_cast<int64_t>(sizeof(StatisticParts)));
  } else {
    layout.add(kNegLseLog2, rows * 4);
    layout.add(kRowDelta, rows * 4);
  }
  layout.add(kDqSums, rows * 4 * shape.head_dim);
  if (p.has_sink) layout.add(kDsinkParts, query_ctas(p) * 4);
  if (shape.group_parts > 1) {
    const int64_t places =
        p.heads_kv * part_key_blocks(p) * num_nodes(shape.group_parts, p.deterministic);
    layout.add(kGroupSums, places * part_floats(shape) * 4);
    layout.add(kGroupCounts, places * kPartUnits * static_cast<int64_t>(sizeof(PartCounts)));
  }
  if (p.deterministic) layout.add(kDqTurns, rows / kQueryRows * 4);
  if (p.deterministic || shape.persistent_ctas > 0) layout.add(kTicket, 4);
  // In turns the first one stores: it needs no zeros.
  if (shape.clears_sums && !p.deterministic && sections > kSectionsAhead) {
    layout.add(kClearedCounts, int64_t{sections} * 4);
  }
  return layout;
}

KernelSource preprocess_source(Element element, StatisticForm form) {
  struct Name {
    const char *enumerator, *in_display_name;
  };
  static constexpr Name kNames[] = {{"kFragments", ""}, {"kRows", "_rows"}, {"kParts", "_parts"}};
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

void explain_backward_order(const AttentionProblem& p, int group_parts, int sections,
                            bool last_keys_first, std::vector<PlanStep>* steps) {
  if (group_parts > 1) {
    steps->push_back({"groups",
                      fmt::format("of {} query heads, each in {} parts", p.group(), group_parts),
                      "whole ones leave CTAs idle; dk and dv of the parts add up in f32"});
  }
  steps->push_back({"order",
                    fmt::format("{} sections of key heads, {} keys first", sections,
                                last_keys_first ? "last" : "first"),
                    "queries and sums of dq of a section fit the L2 cache"});
  if (p.deterministic) {
    steps->push_back({"dq", "added up in turns", "deterministic: the same order in every run"});
  }
}

}  // namespace fa4::internal
