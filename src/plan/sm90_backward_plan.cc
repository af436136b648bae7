#include "plan/sm90_backward_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/backward/traits.h"
#include "plan/gpu_plan.h"
#include "plan/sm90_backward_tuning.h"

namespace fa4::internal {
namespace {

using sm90::BwdTraits;

// CTAs of a launch are numbered in 31 bits.
constexpr int64_t kMaxCtas = (int64_t{1} << 31) - (int64_t{1} << 20);
// Of the L2 cache: Q, dO and dq's sums of the heads in flight. Beyond the cache sums fall to the
// rate of DRAM, a third (docs/kernels/hopper_rates.md has the L2's).
constexpr double kL2ShareForQueries = 0.8;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Element element_of(const AttentionProblem& p) {
  return p.dtype == DType::kBF16 ? Element::kBF16 : Element::kF16;
}

int64_t query_ctas(const AttentionProblem& p) { return p.batch * p.heads_q * query_blocks(p); }
int64_t key_ctas(const AttentionProblem& p) {
  return p.batch * p.heads_kv * ceil_div(p.seqlen_k, sm90::bwd::kKeys);
}

KernelSource row_kernel(const char* name, Element element) {
  return {.main_file = fmt::format("backward/{}.cuh", name),
          .name_expression = fmt::format("fa4::bwd_{}<fa4::BwdRowTraits{{.element={}}}>", name,
                                         enumerator(element)),
          .display_name = fmt::format("bwd_{}_{}", name, name_of(element))};
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

KernelSource Sm90BackwardSpec::source() const {
  const auto [element, head_dim, head_dim_v, stages, split, softcap] = traits;
  return {.main_file = "sm90/backward/kernel.cuh",
          .name_expression =
              fmt::format("fa4::bwd_sm90<fa4::sm90::BwdTraits{{.element={}, .head_dim={}, "
                          ".head_dim_v={}, .stages={}, .split={}, .softcap={}}}>",
                          enumerator(element), head_dim, head_dim_v, stages, split, softcap),
          .display_name = fmt::format("bwd_sm90_{}_d{}{}", name_of(element),
                                      head_dims(head_dim, head_dim_v), softcap ? "_softcap" : "")};
}

Support query_sm90_backward_support(const AttentionProblem& p) {
  const auto no = [](std::string reason) { return Support{false, std::move(reason)}; };
  if (const Support common = query_common_gpu_support(p); !common.supported) return common;
  if (query_ctas(p) + p.heads_q >= kMaxCtas || 2 * key_ctas(p) >= kMaxCtas) {
    return no(
        fmt::format("batch {} with heads_q {} and seqlen_q {}, heads_kv {} and seqlen_k {}; "
                    "accepted on a GPU: below 2^31 - 2^20 blocks of 64 queries or 128 keys",
                    p.batch, p.heads_q, p.seqlen_q, p.heads_kv, p.seqlen_k));
  }
  const std::string strides = check_strides_of_gradients(p);
  return strides.empty() ? Support{} : no(strides);
}

Sm90BackwardSpec plan_sm90_backward(const AttentionProblem& p, const DeviceSpec& device) {
  const Sm90BackwardRow* row = find_sm90_backward(p.head_dim, p.head_dim_v);
  Sm90BackwardSpec spec{traits_of(*row, element_of(p), p.softcap > 0)};
  const int64_t heads = std::max<int64_t>(p.heads_kv * p.batch, 1);
  spec.sections = static_cast<int>(heads);
  if (!p.mask.is_full()) {
    const double row_bytes = 2.0 * static_cast<double>(p.head_dim + p.head_dim_v) +
                             4.0 * static_cast<double>(spec.traits.head_dim);
    const double head_bytes =
        std::max(1.0, row_bytes * static_cast<double>(p.group() * p.seqlen_q));
    const double at_once = kL2ShareForQueries * static_cast<double>(device.l2_bytes) / head_bytes;
    const auto section = std::clamp<int64_t>(static_cast<int64_t>(at_once), 1, heads);
    spec.sections = static_cast<int>(ceil_div(heads, section));
  }
  // CTAs take turns to add to dq. Where a row sees no keys far behind it, the last keys' CTAs are
  // those that see few rows, and each comes to a block after those behind it have been there.
  spec.last_keys_first = p.deterministic && p.mask.window_right >= 0;
  return spec;
}

std::vector<KernelStep> sm90_backward_steps(const AttentionProblem& p,
                                            const Sm90BackwardSpec& spec) {
  const Element element = element_of(p);
  const int64_t queries = query_ctas(p);
  return {{.source = row_kernel("preprocess", element),
           .params = KernelParams::kBackward,
           .grid = static_cast<int>(queries),
           .threads = kPreprocessThreads},
          {.source = spec.source(),
           .params = KernelParams::kBackward,
           .grid = static_cast<int>(key_ctas(p)) * sm90::bwd::num_parts(spec.traits),
           .threads = sm90::bwd::kNumThreads,
           .smem_bytes = sm90::bwd::smem_layout(spec.traits).total},
          {.source = row_kernel("postprocess", element),
           .params = KernelParams::kBackward,
           .grid = static_cast<int>(queries + (p.has_sink ? p.heads_q : 0)),
           .threads = kPostprocessThreads}};
}

WorkspaceLayout sm90_backward_workspace(const AttentionProblem& p, const Sm90BackwardSpec& spec) {
  const bool packed = p.layout_q == Layout::kPacked;
  const int64_t rows = kQueryRows * (packed ? p.heads_q * packed_head_blocks(p) : query_ctas(p));
  WorkspaceLayout layout;
  layout.add(kNegLseLog2, rows * 4);
  layout.add(kRowDelta, rows * 4);
  layout.add(kDqSums, rows * 4 * spec.traits.head_dim);
  if (p.has_sink) layout.add(kDsinkParts, query_ctas(p) * 4);
  if (p.deterministic) {
    layout.add(kDqTurns, rows / kQueryRows * 4);
    layout.add(kTicket, 4);
  }
  return layout;
}

std::vector<PrebuiltKernel> sm90_backward_kernels() {
  std::vector<PrebuiltKernel> kernels;
  for (const Element element : {Element::kBF16, Element::kF16}) {
    kernels.push_back({row_kernel("preprocess", element), 0});
    for (const Sm90BackwardRow& row : sm90_backward_rows()) {
      for (const bool softcap : {false, true}) {
        const Sm90BackwardSpec spec{traits_of(row, element, softcap)};
        add_once({spec.source(), sm90::bwd::smem_layout(spec.traits).total}, &kernels);
      }
    }
    kernels.push_back({row_kernel("postprocess", element), 0});
  }
  return kernels;
}

void explain_sm90_backward(const AttentionProblem& p, const Sm90BackwardSpec& spec,
                           std::vector<PlanStep>* steps) {
  const BwdTraits& t = spec.traits;
  const sm90::bwd::RegisterSplit registers = sm90::bwd::register_split(t);
  steps->push_back({"kernel", spec.source().display_name, spec.source().name_expression});
  explain_head_dims(p, t.head_dim, t.head_dim_v, steps);
  steps->push_back({"tile",
                    fmt::format("{} queries x {} keys, {} stages of Q, dO and dS", kQueryRows,
                                sm90::bwd::kKeys, t.stages),
                    find_sm90_backward(p.head_dim, p.head_dim_v)->reason});
  steps->push_back(
      {"warpgroups",
       fmt::format("1 loads ({} registers), {} for scores, dk and dv ({}), 1 for dq ({})",
                   registers.load, sm90::bwd::kMathWarpgroups, registers.math, registers.reduce),
       "none waits for another one's arithmetic"});
  steps->push_back({"order",
                    fmt::format("{} sections of key heads, {} keys first", spec.sections,
                                spec.last_keys_first ? "last" : "first"),
                    p.mask.is_full() ? "head by head: queries and sums of dq stay in the L2 cache"
                                     : "queries and sums of dq of a section fit the L2 cache"});
  if (p.deterministic) {
    steps->push_back({"dq", "added up in turns", "deterministic: the same order in every run"});
  }
}

}  // namespace fa4::internal
