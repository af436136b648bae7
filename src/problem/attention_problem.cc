#include "problem/attention_problem.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "problem/refuse.h"
#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

void check_enums(const ProblemDesc& d) {
  if (d.dtype != DType::kF32 && d.dtype != DType::kF16 && d.dtype != DType::kBF16) {
    refuse("dtype {}; accepted: 1 (f32), 2 (f16), 3 (bf16)", static_cast<int32_t>(d.dtype));
  }
  if (d.kv_dtype != DType{} && d.kv_dtype != d.dtype && d.kv_dtype != DType::kE4M3) {
    refuse("kv_dtype {}; accepted: 0 (dtype, {}), 4 (e4m3)", static_cast<int32_t>(d.kv_dtype),
           name_of(d.dtype));
  }
  if (d.out_dtype != DType{} && d.out_dtype != d.dtype && d.out_dtype != DType::kF32) {
    refuse("out_dtype {}; accepted: 0 (dtype, {}), 1 (f32)", static_cast<int32_t>(d.out_dtype),
           name_of(d.dtype));
  }
  if (d.grad_dtype != DType{} && d.grad_dtype != d.dtype && d.grad_dtype != DType::kF32) {
    refuse("grad_dtype {}; accepted: 0 (dtype, {}), 1 (f32)", static_cast<int32_t>(d.grad_dtype),
           name_of(d.dtype));
  }
  if (d.sink_dtype != DType{} && d.sink_dtype != DType::kF32 && d.sink_dtype != DType::kF16 &&
      d.sink_dtype != DType::kBF16) {
    refuse("sink_dtype {}; accepted: 0 or 1 (f32), 2 (f16), 3 (bf16)",
           static_cast<int32_t>(d.sink_dtype));
  }
  if (d.layout_q != Layout::kDense && d.layout_q != Layout::kPacked) {
    refuse("layout_q {}; accepted: 0 (dense), 1 (packed)", static_cast<int32_t>(d.layout_q));
  }
  if (d.layout_kv != Layout::kDense && d.layout_kv != Layout::kPacked &&
      d.layout_kv != Layout::kPaged) {
    refuse("layout_kv {}; accepted: 0 (dense), 1 (packed), 2 (paged)",
           static_cast<int32_t>(d.layout_kv));
  }
}

void check_heads(const ProblemDesc& d) {
  const auto check = [](const char* name, int64_t heads) {
    if (heads < 1 || heads > kMaxHeads) {
      refuse("num_heads {} of {}; accepted: 1 to {}", heads, name, kMaxHeads);
    }
  };
  check("q", d.heads_q);
  check("k", d.heads_kv);
  if (d.heads_q % d.heads_kv != 0) {
    refuse("num_heads {} of k does not divide num_heads {} of q; accepted: {}", d.heads_kv,
           d.heads_q, divisors_of(d.heads_q));
  }
}

void check_head_dim(const char* name, int64_t value) {
  if (!is_head_dim(value)) {
    refuse("{} {}; accepted: multiples of 8 from 8 to {}", name, value, kMaxHeadDim);
  }
}

// Sizes that the layouts do not use are set to 0.
void check_layouts(AttentionProblem& p) {
  if (p.layout_q == Layout::kPacked) {
    check_size("total_q", p.total_q);
  } else {
    p.total_q = 0;
  }
  if (p.layout_kv == Layout::kPacked) {
    check_size("total_k", p.total_k);
  } else {
    p.total_k = 0;
  }
  if (p.layout_kv != Layout::kPaged) {
    p.page_size = p.num_pages = p.pages_per_seq = p.page_table_heads = 0;
    p.page_table = {};
    if (p.prefix_len != 0) refuse("prefix_len {}; accepted: 0, as k is not paged", p.prefix_len);
    return;
  }
  check_size("page_size", p.page_size, 1);
  check_size("num_pages", p.num_pages);
  check_size("pages_per_seq", p.pages_per_seq);
  check_size("prefix_len", p.prefix_len);
  if (p.seqlen_k > p.prefix_len + p.pages_per_seq * p.page_size) {
    refuse("seqlen_k {}; accepted: 0 to {}pages_per_seq {} x page_size {} = {}", p.seqlen_k,
           p.prefix_len > 0 ? fmt::format("prefix_len {} + ", p.prefix_len) : "", p.pages_per_seq,
           p.page_size, p.prefix_len + p.pages_per_seq * p.page_size);
  }
  p.has_seqused_k = true;
  if (p.page_table_heads == 0) p.page_table_heads = 1;
  if (p.page_table_heads != 1 && p.page_table_heads != p.heads_kv) {
    refuse("page_table_heads {}; accepted: 0 or 1 (one table), {} (heads_kv)", p.page_table_heads,
           p.heads_kv);
  }
  if (p.page_table == Strides{}) {
    p.page_table = {p.page_table_heads * p.pages_per_seq, 1, p.pages_per_seq};
  }
  if (p.page_table_heads == 1) p.page_table.head = 0;
  check_span("page_table", page_table_extent(p), p.page_table, 4);
}

// Strides that no descale uses are set to 0.
void check_descales(AttentionProblem& p) {
  if (!p.has_descales) {
    if (p.descale_block != 0) {
      refuse("descale_block {}; accepted: 0, as has_descales is 0", p.descale_block);
    }
    p.k_descale = p.v_descale = {};
    return;
  }
  if (!p.is_quantised()) {
    refuse("has_descales 1; accepted: 0, as kv_dtype is {}", name_of(p.kv_dtype));
  }
  const bool paged = p.layout_kv == Layout::kPaged;
  if (p.descale_block != 0 && p.descale_block != kDescaleBlock &&
      !(paged && p.descale_block == p.page_size)) {
    refuse("descale_block {}; accepted: 0 (one a sequence and head), {} (keys){}", p.descale_block,
           kDescaleBlock, paged ? fmt::format(", {} (page_size: one a page)", p.page_size) : "");
  }
  check_span("k_descale", descale_extent(p), p.k_descale, 4);
  check_span("v_descale", descale_extent(p), p.v_descale, 4);
}

// A side that reaches past every key of every query, for all lengths up to the maxima, is -1. A
// mask that hides all keys, for all those lengths, is {-1, -seqlen_k}: with any other one both ends
// of what a query sees stay in order, begin before end, and neighbours' ranges leave no gap.
void fold_mask(AttentionProblem& p) {
  const auto check = [](const char* name, int64_t value, bool is_bound, int bit) {
    if (value < -1 && !is_bound) {
      refuse(
          "{} {}; accepted: -1 (unbounded), 0 or more, any number where window_bounds has bit {}",
          name, value, bit);
    }
  };
  if (p.window.window_bounds < 0 || p.window.window_bounds > 3) {
    refuse("window_bounds {}; accepted: 0, 1 (left), 2 (right), 3 (both)", p.window.window_bounds);
  }
  check("window_left", p.window.window_left, p.window.is_bounded_left(), 0);
  check("window_right", p.window.window_right, p.window.is_bounded_right(), 1);
  constexpr int64_t kFar = 4 * kMaxSize;  // reaches past everything, and two of it add up
  bool left = p.window.is_bounded_left(), right = p.window.is_bounded_right() || p.causal;
  const int64_t left_size = std::clamp(p.window.window_left, -kFar, kFar);
  int64_t right_size =
      p.window.is_bounded_right() ? std::clamp(p.window.window_right, -kFar, kFar) : kFar;
  if (p.causal) right_size = std::min<int64_t>(right_size, 0);
  const bool sees_nothing = (left && left_size <= -p.seqlen_q) ||
                            (right && right_size <= -p.seqlen_k) ||
                            (left && right && left_size + right_size < 0);
  left = left && left_size < p.seqlen_k - 1;
  right = right && right_size < p.seqlen_q - 1;
  p.mask = {left ? left_size : -1, right ? right_size : -1};
  if (sees_nothing && p.seqlen_q > 0 && p.seqlen_k > 0) {
    left = false, right = true;
    p.mask = {-1, -p.seqlen_k};
  }
  p.mask.window_bounds = (left && p.mask.window_left < 0) | (right && p.mask.window_right < 0) << 1;
}

// From the first on tanh(x) = x to float precision for every score that is not NaN anyway; below
// the second all scores are equal to float precision, and arithmetic with it would underflow.
constexpr float kSoftcapOff = 0x1p80f;
constexpr float kSmallestSoftcap = 0x1p-100f;

float canonical_softcap(float softcap) {
  if (softcap == 0 || softcap >= kSoftcapOff) return 0;
  return std::max(softcap, kSmallestSoftcap);
}

void check_splits(const ProblemDesc& d) {
  if (d.num_splits < 0) {
    refuse("num_splits {}; accepted: 0 (the plan decides), 1 (keys are not cut) or more",
           d.num_splits);
  }
  if (d.split_keys < 0 || d.split_keys > kMaxSize || d.split_keys % kSplitStep != 0) {
    refuse("split_keys {}; accepted: 0 (num_splits holds), multiples of {} to {}", d.split_keys,
           kSplitStep, kMaxSize);
  }
  if (d.num_splits != 0 && d.split_keys != 0) {
    refuse("split_keys {} beside num_splits {}; accepted: one of them", d.split_keys, d.num_splits);
  }
}

void check_numbers(AttentionProblem& p) {
  if (p.sm_margin < 0) refuse("sm_margin {}; accepted: 0 or more", p.sm_margin);
  if (p.softmax_scale.has_value() && !std::isfinite(*p.softmax_scale)) {
    refuse("softmax_scale {}; accepted: a finite number", *p.softmax_scale);
  }
  if (!std::isfinite(p.softcap) || p.softcap < 0) {
    refuse("softcap {}; accepted: 0 (off) or a positive finite number", p.softcap);
  }
  p.softcap = canonical_softcap(p.softcap);
  p.scale = p.softmax_scale.value_or(
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim))));
}

// Those of a tensor that lies contiguous; none where it would be too large.
std::optional<Strides> own_strides(const TensorExtent& extent, DType dtype, bool packed) {
  std::optional<Strides> strides = contiguous_strides(extent);
  if (strides.has_value() && packed) strides->batch = 0;
  if (strides.has_value() && !span_of(extent, *strides, size_of(dtype)).has_value()) return {};
  return strides;
}

void check_tensor(const char* name, const TensorExtent& extent, DType dtype, bool packed,
                  Strides& strides) {
  if (packed) strides.batch = 0;
  if (strides != Strides{}) return check_span(name, extent, strides, size_of(dtype));
  const std::optional<Strides> own = own_strides(extent, dtype, packed);
  if (!own.has_value()) refuse_size(name, extent);
  strides = *own;
}

// One that a forward does not have: without strides of its own a size that is too large is for
// check_gradients to refuse.
void check_backward_tensor(const char* name, const TensorExtent& extent, DType dtype, bool packed,
                           Strides& strides) {
  if (packed) strides.batch = 0;
  if (strides == Strides{}) {
    strides = own_strides(extent, dtype, packed).value_or(Strides{});
  } else {
    check_span(name, extent, strides, size_of(dtype));
  }
}

// A gradient, which is written.
void check_gradient(const char* name, const TensorExtent& extent, DType dtype, bool packed,
                    Strides& strides) {
  const bool is_given = strides != Strides{};
  check_backward_tensor(name, extent, dtype, packed, strides);
  if (is_given) check_injective(name, extent, strides);
}

void check_tensors(AttentionProblem& p) {
  const bool packed_q = p.layout_q == Layout::kPacked;
  const bool packed_k = p.layout_kv == Layout::kPacked;
  const TensorExtent q = query_extent(p, p.total_q, p.head_dim);
  const TensorExtent out = query_extent(p, p.total_q, p.head_dim_v);
  const TensorExtent k = key_extent(p, p.total_k, p.head_dim);
  const TensorExtent v = key_extent(p, p.total_k, p.head_dim_v);
  check_tensor("q", q, p.dtype, packed_q, p.q);
  check_tensor("k", k, p.kv_dtype, packed_k, p.k);
  check_tensor("v", v, p.kv_dtype, packed_k, p.v);
  check_tensor("out", out, p.out_dtype, packed_q, p.out);
  check_injective("out", out, p.out);
  check_backward_tensor("dout", out, p.dtype, packed_q, p.dout);
  check_gradient("dq", q, p.grad_dtype, packed_q, p.dq);
  check_gradient("dk", k, p.grad_dtype, packed_k, p.dk);
  check_gradient("dv", v, p.grad_dtype, packed_k, p.dv);
}

}  // namespace

std::string divisors_of(int64_t number) {
  constexpr int kListed = 16;
  std::string text;
  int listed = 0;
  for (int64_t i = 1; i <= number; ++i) {
    if (number % i != 0) continue;
    if (++listed > kListed) return text + ", ...";
    text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  }
  return text;
}

void check_gradients(const AttentionProblem& p) {
  const auto check = [](const char* name, const TensorExtent& extent, const Strides& strides) {
    if (strides == Strides{} && !extent.empty()) refuse_size(name, extent);
  };
  check("dout", query_extent(p, p.total_q, p.head_dim_v), p.dout);
  check("dq", query_extent(p, p.total_q, p.head_dim), p.dq);
  check("dk", key_extent(p, p.total_k, p.head_dim), p.dk);
  check("dv", key_extent(p, p.total_k, p.head_dim_v), p.dv);
}

AttentionProblem AttentionProblem::make(const ProblemDesc& desc) {
  AttentionProblem p;
  static_cast<ProblemDesc&>(p) = desc;
  check_enums(p);
  if (p.kv_dtype == DType{}) p.kv_dtype = p.dtype;
  if (p.out_dtype == DType{}) p.out_dtype = p.dtype;
  if (p.grad_dtype == DType{}) p.grad_dtype = p.dtype;
  if (p.sink_dtype == DType{}) p.sink_dtype = DType::kF32;
  check_size("batch", p.batch);
  check_size("seqlen_q", p.seqlen_q);
  check_size("seqlen_k", p.seqlen_k);
  check_heads(p);
  if (p.head_dim_v == 0) p.head_dim_v = p.head_dim;
  check_head_dim("head_dim", p.head_dim);
  check_head_dim("head_dim_v", p.head_dim_v);
  check_layouts(p);
  check_descales(p);
  fold_mask(p);
  check_splits(p);
  check_numbers(p);
  check_tensors(p);
  return p;
}

}  // namespace fa4::internal
