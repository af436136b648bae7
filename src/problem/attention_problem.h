// What the user asked for, validated and canonical. Every message that a user's numbers can cause
// is made here. A problem is the same for both directions; a forward ignores what only the backward
// has.
//
// Shapes, in elements: q (batch, seqlen_q, heads_q, head_dim), k (batch, seqlen_k, heads_kv,
// head_dim), v (batch, seqlen_k, heads_kv, head_dim_v), out (batch, seqlen_q, heads_q, head_dim_v);
// lse (batch, heads_q, seqlen_q) f32. Packed: q (total_q, heads_q, head_dim), lse (heads_q,
// total_q), and so on, split by cu_seqlens. Paged: k and v are (num_pages, page_size, heads_kv,
// dim), indexed by page_table (batch, pages_per_seq), or (batch, heads_kv, pages_per_seq). dout is
// as out; dq, dk, dv as q, k, v. Quantised keys and values, kv_dtype kE4M3, are their numbers times
// a descale: f32 (batch, blocks of keys, heads_kv) by strides.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/rounding.h"

namespace fa4::internal {

enum class Layout : int32_t { kDense = 0, kPacked = 1, kPaged = 2 };

// Elements between neighbours; the last dimension is contiguous. Packed tensors have no batch
// stride; a paged tensor's batch stride is the distance of two pages.
struct Strides {
  int64_t batch = 0;
  int64_t seqlen = 0;
  int64_t head = 0;
  bool operator==(const Strides&) const = default;
};

// Inclusive window around a query's position; -1 is unbounded. Causal is {-1, 0}.
struct MaskSpec {
  int64_t window_left = -1;
  int64_t window_right = -1;
  // Bit 0: window_left is a bound also when it is negative, and the window begins after the
  // position; bit 1: so is window_right, and the window ends before the position.
  int32_t window_bounds = 0;
  bool is_bounded_left() const { return window_left >= 0 || (window_bounds & 1) != 0; }
  bool is_bounded_right() const { return window_right >= 0 || (window_bounds & 2) != 0; }
  bool is_full() const { return !is_bounded_left() && !is_bounded_right(); }
  bool operator==(const MaskSpec&) const = default;
};

// The largest batch, sequence length and number of pages: index tensors are 32-bit.
inline constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxHeads = 65536;
inline constexpr int kMaxHeadDim = 256;
constexpr bool is_head_dim(int64_t size) {
  return size >= 8 && size <= kMaxHeadDim && size % 8 == 0;
}
// For a message, those of `number`, which is positive: "1, 2, 4"; the first 16 and ", ..." of more.
std::string divisors_of(int64_t number);
// Parts of a row's keys begin at multiples of this many.
inline constexpr int64_t kSplitStep = 128;
// Keys that share a descale, where neither all of a sequence nor those of a page do.
inline constexpr int64_t kDescaleBlock = 128;

// What a caller fills in: same fields as fa4_problem.
struct ProblemDesc {
  DType dtype = DType::kBF16;
  DType kv_dtype{};                   // of k and v as they are stored: dtype, kE4M3, or none: dtype
  Layout layout_q = Layout::kDense;   // dense or packed
  Layout layout_kv = Layout::kDense;  // dense, packed or paged
  int64_t batch = 0;
  int64_t seqlen_q = 0;  // packed: the longest sequence
  int64_t seqlen_k = 0;  // packed: the longest sequence; paged: pages_per_seq * page_size at most
  int64_t total_q = 0;   // packed only: rows of q (a maximum; ForwardArgs may say fewer)
  int64_t total_k = 0;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t head_dim = 0;
  int64_t head_dim_v = 0;        // 0: head_dim
  int64_t page_size = 0;         // paged only
  int64_t num_pages = 0;         // paged only
  int64_t pages_per_seq = 0;     // paged only
  int64_t page_table_heads = 0;  // paged only; 0, 1: one row of pages for all heads, or heads_kv
  Strides page_table;            // paged only: batch, page, head; all zero: contiguous
  int64_t prefix_len = 0;        // paged only: keys that all sequences share, before their own
  bool has_seqused_q = false;    // per-sequence query counts are given at execution
  bool has_seqused_k = false;  // per-sequence key counts are given at execution (always with paged)
  bool has_sink = false;       // per-query-head sink logits are given at execution
  DType sink_dtype{};          // of those; none: kF32
  bool has_descales = false;   // kE4M3: k_descale and v_descale may be given at execution
  // Keys that share a descale: 0: all of a sequence; kDescaleBlock; or, paged, page_size: those of
  // a page, whose descale is found by the page's number (also where page_size is kDescaleBlock).
  int64_t descale_block = 0;
  Strides k_descale, v_descale;  // batch, block or page, head; as they are: 0 is the same number
  bool causal = false;
  MaskSpec window;                     // intersected with causal
  std::optional<float> softmax_scale;  // none: 1/sqrt(head_dim)
  float softcap = 0.0f;                // 0: off
  // How a row's keys are cut into parts whose sums are put together in their order: into at most
  // num_splits (0: as the plan decides, 1: not at all), or at multiples of split_keys.
  int64_t num_splits = 0;
  int64_t split_keys = 0;  // multiples of kSplitStep; 0: num_splits holds
  DType out_dtype{};       // of out: dtype, kF32, or none: dtype
  int64_t sm_margin = 0;   // SMs of a GPU that are left to other work; a hint
  Strides q, k, v, out;    // all zero: contiguous
  // The backward alone reads these.
  bool deterministic = false;  // the same bits in every run
  bool has_dlse = false;       // the gradient of lse is given at execution
  DType grad_dtype{};          // of dq, dk, dv: dtype, kF32, or none: dtype
  Strides dout, dq, dk, dv;    // all zero: contiguous
};

// Validated: invariants hold, defaults are filled in (scale, strides, head_dim_v), causal is folded
// into the mask.
struct AttentionProblem : ProblemDesc {
  MaskSpec mask;       // causal and window, intersected
  float scale = 1.0f;  // softmax_scale, or its default

  // Throws Error{kInvalidArgument} that names the argument, its value and what is accepted.
  static AttentionProblem make(const ProblemDesc& desc);

  bool is_quantised() const { return kv_dtype == DType::kE4M3; }
  bool has_page_descales() const {
    return layout_kv == Layout::kPaged && descale_block > 0 && descale_block == page_size;
  }
  int64_t group() const { return heads_q / heads_kv; }  // query heads per key head
  // The scores are not q k times a positive factor.
  bool transforms_scores() const { return softcap > 0 || scale < 0; }
  // Pages that hold the shared keys.
  int64_t prefix_pages() const { return prefix_len == 0 ? 0 : ceil_div(prefix_len, page_size); }
  int64_t rows_k() const { return layout_kv == Layout::kPacked ? total_k : batch * seqlen_k; }
  int64_t rows_q() const { return layout_q == Layout::kPacked ? total_q : batch * seqlen_q; }
  int64_t out_elements() const { return rows_q() * heads_q * head_dim_v; }
  int64_t lse_elements() const { return rows_q() * heads_q; }
};

// Refuses what a backward alone has and what is too large: contiguous gradients of expanded
// tensors.
void check_gradients(const AttentionProblem& problem);

// Pairs (query, key) that the mask leaves, of one sequence and one head: the FLOPs are 2 (head_dim
// + head_dim_v) each.
int64_t visible_pairs(int64_t seqlen_q, int64_t seqlen_k, const MaskSpec& mask);

// One sequence's keys that query `i` sees: [begin, end), empty when begin >= end. Both ends lie in
// [0, seqlen_k] and grow from query to query.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};
KeyRange visible_keys(int64_t i, int64_t seqlen_q, int64_t seqlen_k, const MaskSpec& mask);

// One sequence's queries that see key `j`: [begin, end), empty when begin >= end. Both ends lie in
// [0, seqlen_q] and grow from key to key.
struct QueryRange {
  int64_t begin = 0;
  int64_t end = 0;
};
QueryRange visible_queries(int64_t j, int64_t seqlen_q, int64_t seqlen_k, const MaskSpec& mask);

}  // namespace fa4::internal
