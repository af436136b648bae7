#include "capi/convert.h"

#include <fmt/format.h>

#include "capi/boundary.h"

namespace fa4::internal {
namespace {

void check_reserved(const fa4_forward_args& args) {
  const auto check = [](const char* name, const void* pointer) {
    if (pointer != nullptr) {
      throw Error(ErrorCode::kNotSupported,
                  fmt::format("{} {} is not in this version; accepted: NULL", name, pointer));
    }
  };
  check("q_descale", args.q_descale);
  check("max_logit", args.max_logit);
}

bool to_flag(const char* name, int32_t value) {
  if (value != 0 && value != 1) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} {}; accepted: 0, 1", name, value));
  }
  return value == 1;
}

void check_reserved(const fa4_problem& problem) {
  if (!to_flag("has_max_logit", problem.has_max_logit)) return;
  throw Error(ErrorCode::kNotSupported, "has_max_logit 1 is not in this version; accepted: 0");
}

// The library's own -1, the problem's total, is `has_totals` 0 here.
int64_t to_total(const char* name, int64_t total) {
  if (total < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} {}; accepted: from 0, with has_totals 0 the problem's", name, total));
  }
  return total;
}

Strides to_strides(const int64_t (&strides)[3]) { return {strides[0], strides[1], strides[2]}; }

// Types of the elements, and how those of k and v are scaled.
void read_types(const fa4_problem& problem, ProblemDesc& desc) {
  desc.dtype = static_cast<DType>(problem.dtype);
  desc.kv_dtype = static_cast<DType>(problem.kv_dtype);
  desc.out_dtype = static_cast<DType>(problem.out_dtype);
  desc.grad_dtype = static_cast<DType>(problem.grad_dtype);
  desc.sink_dtype = static_cast<DType>(problem.sink_dtype);
  desc.has_descales = to_flag("has_descales", problem.has_descales);
  desc.descale_block = problem.descale_block;
}

// Sequences, heads and pages.
void read_sizes(const fa4_problem& problem, ProblemDesc& desc) {
  desc.layout_q = static_cast<Layout>(problem.layout_q);
  desc.layout_kv = static_cast<Layout>(problem.layout_kv);
  desc.batch = problem.batch;
  desc.seqlen_q = problem.seqlen_q;
  desc.seqlen_k = problem.seqlen_k;
  desc.total_q = problem.total_q;
  desc.total_k = problem.total_k;
  desc.heads_q = problem.heads_q;
  desc.heads_kv = problem.heads_kv;
  desc.head_dim = problem.head_dim;
  desc.head_dim_v = problem.head_dim_v;
  desc.page_size = problem.page_size;
  desc.num_pages = problem.num_pages;
  desc.pages_per_seq = problem.pages_per_seq;
  desc.page_table_heads = problem.page_table_heads;
  desc.prefix_len = problem.prefix_len;
  desc.has_seqused_q = to_flag("has_seqused_q", problem.has_seqused_q);
  desc.has_seqused_k = to_flag("has_seqused_k", problem.has_seqused_k);
}

// Masks, scale, cap and sink.
void read_scores(const fa4_problem& problem, ProblemDesc& desc) {
  desc.has_sink = to_flag("has_sink", problem.has_sink);
  desc.causal = to_flag("causal", problem.causal);
  const bool has_window = to_flag("has_window", problem.has_window);
  desc.window.window_bounds = problem.window_bounds;
  if (has_window || (problem.window_bounds & 1) != 0) {
    desc.window.window_left = problem.window_left;
  }
  if (has_window || (problem.window_bounds & 2) != 0) {
    desc.window.window_right = problem.window_right;
  }
  if (to_flag("has_softmax_scale", problem.has_softmax_scale)) {
    desc.softmax_scale = problem.softmax_scale;
  }
  desc.softcap = problem.softcap;
}

void read_strides(const fa4_problem& problem, ProblemDesc& desc) {
  desc.q = to_strides(problem.q_strides);
  desc.k = to_strides(problem.k_strides);
  desc.v = to_strides(problem.v_strides);
  desc.out = to_strides(problem.out_strides);
  desc.page_table = to_strides(problem.page_table_strides);
  desc.k_descale = to_strides(problem.k_descale_strides);
  desc.v_descale = to_strides(problem.v_descale_strides);
  desc.dout = to_strides(problem.dout_strides);
  desc.dq = to_strides(problem.dq_strides);
  desc.dk = to_strides(problem.dk_strides);
  desc.dv = to_strides(problem.dv_strides);
}

// What the structs of both directions hold.
template <class Given, class Args>
void read_common(const Given& args, Args& result) {
  result.q = args.q;
  result.k = args.k;
  result.v = args.v;
  result.sink = args.sink;
  result.cu_seqlens_q = args.cu_seqlens_q;
  result.cu_seqlens_k = args.cu_seqlens_k;
  result.seqused_q = args.seqused_q;
  result.seqused_k = args.seqused_k;
  if (to_flag("has_totals", args.has_totals)) {
    result.total_q = to_total("total_q", args.total_q);
    result.total_k = to_total("total_k", args.total_k);
  }
  result.workspace = args.workspace;
  result.workspace_bytes = args.workspace_bytes;
  result.stream = args.stream;
}

}  // namespace

fa4_problem read_problem(const fa4_problem* given) {
  return read_struct(given, "problem", "fa4_problem");
}

AttentionProblem to_problem(const fa4_problem& problem) {
  ProblemDesc desc;
  // In this order, in which a flag that is neither 0 nor 1 is refused.
  read_types(problem, desc);
  read_sizes(problem, desc);
  read_scores(problem, desc);
  read_strides(problem, desc);
  desc.num_splits = problem.num_splits;
  desc.split_keys = problem.split_keys;
  desc.sm_margin = problem.sm_margin;
  desc.deterministic = to_flag("deterministic", problem.deterministic);
  desc.has_dlse = to_flag("has_dlse", problem.has_dlse);
  AttentionProblem result = AttentionProblem::make(desc);
  check_reserved(problem);
  return result;
}

ForwardArgs to_args(const fa4_forward_args* given) {
  const fa4_forward_args args = read_struct(given, "args", "fa4_forward_args");
  check_reserved(args);
  ForwardArgs result;
  read_common(args, result);
  result.out = args.out;
  result.lse = args.lse;
  result.k_descale = args.k_descale;
  result.v_descale = args.v_descale;
  result.page_table = args.page_table;
  result.prefix_pages = args.prefix_pages;
  return result;
}

BackwardArgs to_args(const fa4_backward_args* given) {
  const fa4_backward_args args = read_struct(given, "args", "fa4_backward_args");
  BackwardArgs result;
  read_common(args, result);
  result.out = args.out;
  result.dout = args.dout;
  result.lse = args.lse;
  result.dlse = args.dlse;
  result.dq = args.dq;
  result.dk = args.dk;
  result.dv = args.dv;
  result.dsink = args.dsink;
  return result;
}

AppendArgs to_args(const fa4_append_args* given) {
  const fa4_append_args args = read_struct(given, "args", "fa4_append_args");
  AppendArgs result;
  result.k = args.k;
  result.v = args.v;
  result.k_cache = args.k_cache;
  result.v_cache = args.v_cache;
  result.positions = args.positions;
  result.cu_seqlens_q = args.cu_seqlens_q;
  result.seqused_q = args.seqused_q;
  result.page_table = args.page_table;
  if (to_flag("has_totals", args.has_totals)) {
    result.total_q = to_total("total_q", args.total_q);
  }
  result.new_k = to_strides(args.k_strides);
  result.new_v = to_strides(args.v_strides);
  result.cos = args.cos;
  result.sin = args.sin;
  result.rotary_dtype = static_cast<DType>(args.rotary_dtype);
  result.rotary_pairs = static_cast<RotaryPairs>(args.rotary_pairs);
  result.rotary_dim = args.rotary_dim;
  result.rotary_rows = args.rotary_rows;
  result.k_descale = args.k_descale;
  result.v_descale = args.v_descale;
  result.stream = args.stream;
  return result;
}

MergeArgs to_args(const fa4_merge_args* given) {
  const fa4_merge_args args = read_struct(given, "args", "fa4_merge_args");
  MergeArgs result;
  result.dtype = static_cast<DType>(args.dtype);
  result.out_dtype = static_cast<DType>(args.out_dtype);
  result.num_parts = args.num_parts;
  result.batch = args.batch;
  result.seqlen = args.seqlen;
  result.heads = args.heads;
  result.head_dim = args.head_dim;
  result.part_outs = args.part_outs;
  result.part_lses = args.part_lses;
  result.out = args.out;
  result.lse = args.lse;
  result.part_out = to_strides(args.part_out_strides);
  result.part_lse = to_strides(args.part_lse_strides);
  result.output = to_strides(args.out_strides);
  result.stream = args.stream;
  return result;
}

int to_num_threads(int32_t given) {
  if (given < 0 || given > 4096) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("num_threads {}; accepted: 0 to 4096", given));
  }
  return given;
}

}  // namespace fa4::internal
