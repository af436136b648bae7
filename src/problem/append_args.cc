#include "problem/append_args.h"

#include <fmt/format.h>

#include <limits>

#include "problem/refuse.h"
#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

constexpr int64_t kMaxRotaryRows = std::numeric_limits<int32_t>::max();  // keys count in 32 bits

TensorExtent new_extent(const AttentionProblem& p, const AppendArgs& a, int64_t dim) {
  TensorExtent extent = query_extent(p, rows_of_packed_q(p, a), dim);
  extent.heads = p.heads_kv;
  return extent;
}

void check_new_tensor(const char* name, const AttentionProblem& p, const TensorExtent& extent,
                      Strides& strides) {
  const bool packed = p.layout_q == Layout::kPacked;
  if (packed) strides.batch = 0;
  complete_strides(name, extent, size_of(p.dtype), contiguous_strides(extent), strides);
  if (packed) strides.batch = 0;
}

void check_rotary(const AttentionProblem& p, AppendArgs& a) {
  if ((a.cos == nullptr) != (a.sin == nullptr)) {
    refuse("{} is NULL beside {}; accepted: both, or neither", a.cos == nullptr ? "cos" : "sin",
           a.cos == nullptr ? "sin" : "cos");
  }
  if (a.cos == nullptr) {
    a.rotary_dim = a.rotary_rows = 0;
    return;
  }
  if (a.rotary_dtype == DType{}) a.rotary_dtype = p.dtype;
  if (a.rotary_dtype != p.dtype && a.rotary_dtype != DType::kF32) {
    refuse("rotary_dtype {}; accepted: 0 (dtype, {}), 1 (f32)",
           static_cast<int32_t>(a.rotary_dtype), name_of(p.dtype));
  }
  if (a.rotary_pairs != RotaryPairs::kHalves && a.rotary_pairs != RotaryPairs::kInterleaved) {
    refuse("rotary_pairs {}; accepted: 0 (halves), 1 (interleaved)",
           static_cast<int32_t>(a.rotary_pairs));
  }
  if (a.rotary_dim < 2 || a.rotary_dim > p.head_dim || a.rotary_dim % 2 != 0) {
    refuse("rotary_dim {}; accepted: even numbers from 2 to head_dim {}", a.rotary_dim, p.head_dim);
  }
  if (a.rotary_rows < 0 || a.rotary_rows > kMaxRotaryRows) {
    refuse("rotary_rows {}; accepted: 0 to {}", a.rotary_rows, kMaxRotaryRows);
  }
}

void check_memory(const AttentionProblem& p, const AppendArgs& a, bool any) {
  const int bytes = size_of(p.dtype), rotary_bytes = a.cos == nullptr ? 4 : size_of(a.rotary_dtype);
  const int64_t factors = a.rotary_rows * (a.rotary_dim / 2);
  const int cache_bytes = size_of(p.kv_dtype);
  const auto descale = [&](const char* name, const float* data, const Strides& strides) {
    return MemoryRegion{name, data, data == nullptr ? TensorExtent{} : descale_extent(p), strides,
                        4};
  };
  const MemoryRegion inputs[] = {
      {"k", a.k, new_extent(p, a, p.head_dim), a.new_k, bytes},
      {"v", a.v, new_extent(p, a, p.head_dim_v), a.new_v, bytes},
      descale("k_descale", a.k_descale, p.k_descale),
      descale("v_descale", a.v_descale, p.v_descale),
      flat_region("cos", a.cos, factors, rotary_bytes),
      flat_region("sin", a.sin, factors, rotary_bytes),
      flat_region("positions", a.positions, p.batch, 4),
      flat_region("cu_seqlens_q", a.cu_seqlens_q, p.batch + 1, 4),
      flat_region("seqused_q", a.seqused_q, p.batch, 4),
      {"page_table", a.page_table, a.page_table == nullptr ? TensorExtent{} : page_table_extent(p),
       p.page_table, 4}};
  const MemoryRegion outputs[] = {
      {"k_cache", a.k_cache, key_extent(p, 0, p.head_dim), p.k, cache_bytes},
      {"v_cache", a.v_cache, key_extent(p, 0, p.head_dim_v), p.v, cache_bytes}};
  if (!any) return;
  for (const MemoryRegion& input : inputs) check_pointer(input);
  for (const MemoryRegion& output : outputs) check_pointer(output);
  check_overlaps(inputs, outputs);
}

void check_positions(const AttentionProblem& p, const AppendArgs& a) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t rows = new_rows_of(p, a, b), first = a.positions[b];
    if (rows > p.seqlen_k) {
      refuse("seqlen_q {} of sequence {}; accepted: 0 to {} (seqlen_k, its room in the cache)",
             rows, b, p.seqlen_k);
    }
    if (first < 0 || first + rows > p.seqlen_k) {
      refuse("positions[{}] {} of {} new rows; accepted: 0 to {} (seqlen_k {})", b, first, rows,
             p.seqlen_k - rows, p.seqlen_k);
    }
    if (a.cos != nullptr && first + rows > a.rotary_rows) {
      refuse("rotary_rows {}; accepted: at least {}, as positions[{}] is {} and has {} new rows",
             a.rotary_rows, first + rows, b, first, rows);
    }
    if (p.layout_kv == Layout::kPaged && rows > 0) check_pages(p, a, b, first, first + rows);
  }
}

bool appends_any(const AttentionProblem& p) { return p.batch > 0 && p.rows_q() > 0; }

}  // namespace

int64_t new_rows_of(const AttentionProblem& p, const AppendArgs& a, int64_t b) {
  if (p.has_seqused_q) return a.seqused_q[b];
  if (p.layout_q == Layout::kPacked) return a.cu_seqlens_q[b + 1] - a.cu_seqlens_q[b];
  return p.seqlen_q;
}

AppendArgs completed(const AttentionProblem& p, AppendArgs a) {
  if (p.layout_kv == Layout::kPacked) {
    refuse("layout_kv packed; accepted for a cache: dense, paged");
  }
  check_new_tensor("k", p, new_extent(p, a, p.head_dim), a.new_k);
  check_new_tensor("v", p, new_extent(p, a, p.head_dim_v), a.new_v);
  check_injective("k_cache", key_extent(p, 0, p.head_dim), p.k);
  check_injective("v_cache", key_extent(p, 0, p.head_dim_v), p.v);
  if (p.prefix_len > 0) {
    refuse("prefix_len {}; accepted: 0, as new keys go to pages of each sequence's own",
           p.prefix_len);
  }
  check_rotary(p, a);
  const bool any = appends_any(p);
  check_query_pointers(p, a);
  check_presence("positions", a.positions, true, p.batch > 0, "a cache");
  check_presence("page_table", a.page_table, p.layout_kv == Layout::kPaged,
                 any && p.pages_per_seq > 0, "paged k");
  check_presence("k_descale", a.k_descale, p.has_descales, false, "descales");
  check_presence("v_descale", a.v_descale, p.has_descales, false, "descales");
  check_memory(p, a, any);
  return a;
}

AppendArgs checked(const AttentionProblem& p, AppendArgs a) {
  a = completed(p, a);
  check_query_indices(p, a);
  if (appends_any(p)) check_positions(p, a);
  return a;
}

}  // namespace fa4::internal
