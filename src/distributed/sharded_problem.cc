#include "distributed/sharded_problem.h"

#include <fmt/format.h>

#include "core/error.h"
#include "distributed/all_to_all.h"

namespace fa4::internal {
namespace {

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::kNotSupported, fmt::format(format, std::forward<Values>(values)...));
}

void check_strides(const char* name, const Strides& given, int64_t seqlen, int64_t heads,
                   int64_t dim) {
  const Strides contiguous{seqlen * heads * dim, heads * dim, dim};
  if (given == contiguous) return;
  refuse(
      "{}_strides {} {} {}; accepted in context parallelism: those of a contiguous tensor, "
      "{} {} {}, or all 0",
      name, given.batch, given.seqlen, given.head, contiguous.batch, contiguous.seqlen,
      contiguous.head);
}

// What is not there yet.
void check_whole(const AttentionProblem& p) {
  if (p.layout_q != Layout::kDense || p.layout_kv != Layout::kDense) {
    refuse("layout_q {} and layout_kv {}; accepted in context parallelism: 0 and 0 (dense)",
           static_cast<int>(p.layout_q), static_cast<int>(p.layout_kv));
  }
  if (p.seqlen_q != p.seqlen_k) {
    refuse(
        "seqlen_q {} and seqlen_k {}; accepted in context parallelism: equal ones, queries and "
        "keys being of one sequence",
        p.seqlen_q, p.seqlen_k);
  }
  if (p.has_seqused_q || p.has_seqused_k) {
    refuse("has_seqused_{} 1; accepted in context parallelism: 0", p.has_seqused_q ? "q" : "k");
  }
  if (p.is_quantised()) {
    refuse("kv_dtype e4m3; accepted in context parallelism: {}, dtype", name_of(p.dtype));
  }
  const int64_t n = p.seqlen_q;
  check_strides("q", p.q, n, p.heads_q, p.head_dim);
  check_strides("k", p.k, n, p.heads_kv, p.head_dim);
  check_strides("v", p.v, n, p.heads_kv, p.head_dim_v);
  check_strides("out", p.out, n, p.heads_q, p.head_dim_v);
  check_strides("dout", p.dout, n, p.heads_q, p.head_dim_v);
  check_strides("dq", p.dq, n, p.heads_q, p.head_dim);
  check_strides("dk", p.dk, n, p.heads_kv, p.head_dim);
  check_strides("dv", p.dv, n, p.heads_kv, p.head_dim_v);
}

void choose_method(ShardedProblem& p, ContextMethod asked) {
  const AttentionProblem& whole = p.whole;
  const int ranks = p.ranks();
  const std::string heads =
      fmt::format("{} heads of q and {} of k over {} ranks", whole.heads_q, whole.heads_kv, ranks);
  switch (asked) {
    case ContextMethod::kAuto: {
      const bool fits = whole.heads_q % ranks == 0 && whole.heads_kv % ranks == 0;
      p.method = fits ? ContextMethod::kAllToAll : ContextMethod::kAllGather;
      p.why = heads;
      return;
    }
    case ContextMethod::kAllToAll:
      if (!can_deal_out_heads(whole, ranks)) {
        refuse(
            "method all_to_all of {}; accepted: heads of q of a multiple of {}, heads of k of a "
            "multiple or a divisor of it (all_gather takes any)",
            heads, ranks);
      }
      break;
    case ContextMethod::kAllGather: break;
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("method {}; accepted: 0 (the plan decides), 1 (all_to_all), 2 "
                              "(all_gather)",
                              static_cast<int32_t>(asked)));
  }
  p.method = asked;
  p.why = "asked for";
}

}  // namespace

std::string_view name_of(ContextMethod method) {
  switch (method) {
    case ContextMethod::kAuto: return "auto";
    case ContextMethod::kAllToAll: return "all_to_all";
    case ContextMethod::kAllGather: return "all_gather";
  }
  return "?";
}

AttentionProblem resized(const AttentionProblem& problem, const AttentionSizes& sizes) {
  ProblemDesc desc = problem;
  desc.seqlen_q = sizes.seqlen_q;
  desc.seqlen_k = sizes.seqlen_k;
  desc.heads_q = sizes.heads_q;
  desc.heads_kv = sizes.heads_kv;
  desc.q = desc.k = desc.v = desc.out = desc.dout = desc.dq = desc.dk = desc.dv = {};
  return AttentionProblem::make(desc);
}

std::string ShardedProblem::description() const {
  const AttentionProblem& p = whole;
  return fmt::format(
      "{} {}: {} batch {} seqlen {} heads {}:{} head_dim {}:{} window {} {} bounds {} scale {} "
      "softcap {} sink {} {} out {} gradients {} dlse {} splits {} {}",
      name_of(method), name_of(partition.layout()), name_of(p.dtype), p.batch, p.seqlen_q,
      p.heads_q, p.heads_kv, p.head_dim, p.head_dim_v, p.mask.window_left, p.mask.window_right,
      p.mask.window_bounds, p.scale, p.softcap, p.has_sink ? 1 : 0, name_of(p.sink_dtype),
      name_of(p.out_dtype), name_of(p.grad_dtype), p.has_dlse ? 1 : 0, p.num_splits, p.split_keys);
}

ShardedProblem ShardedProblem::make(const AttentionProblem& whole, const ContextOptions& options,
                                    int rank, int ranks) {
  check_whole(whole);
  const SequencePartition partition(ranks, whole.seqlen_q, options.layout);
  const int64_t local = partition.local_seqlen();
  ShardedProblem sharded{.whole = whole,
                         .local = resized(whole, {local, local, whole.heads_q, whole.heads_kv}),
                         .partition = partition,
                         .rank = rank,
                         .why = {}};
  choose_method(sharded, options.method);
  return sharded;
}

}  // namespace fa4::internal
