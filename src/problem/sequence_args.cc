#include "problem/sequence_args.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "core/rounding.h"
#include "problem/refuse.h"

namespace fa4::internal {
namespace {

void check_total(const char* name, bool packed, int64_t given, int64_t maximum) {
  if (given < -1 || (packed && given > maximum)) {
    refuse("{} {}; accepted: 0 to {}", name, given, maximum);
  }
}

void check_cu_seqlens(const char* name, const int32_t* cu_seqlens, int64_t batch, int64_t total,
                      int64_t longest) {
  if (cu_seqlens[0] != 0) refuse("{}[0] {}; accepted: 0", name, cu_seqlens[0]);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = static_cast<int64_t>(cu_seqlens[b + 1]) - cu_seqlens[b];
    if (length < 0 || length > longest || cu_seqlens[b + 1] > total) {
      refuse("{}[{}] {} after {}; accepted: ascending, at most {} a sequence and {} in all", name,
             b + 1, cu_seqlens[b + 1], cu_seqlens[b], longest, total);
    }
  }
}

// `cu_seqlens`: NULL when each sequence has `seqlen` rows.
void check_seqused(const char* name, const int32_t* seqused, const int32_t* cu_seqlens,
                   int64_t batch, int64_t seqlen) {
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t longest = cu_seqlens != nullptr ? cu_seqlens[b + 1] - cu_seqlens[b] : seqlen;
    if (seqused[b] < 0 || seqused[b] > longest) {
      refuse("{}[{}] {}; accepted: 0 to {}", name, b, seqused[b], longest);
    }
  }
}

int64_t longest_of(const int32_t* lengths, int64_t batch) {
  return batch == 0 ? 0 : *std::max_element(lengths, lengths + batch);
}
int64_t longest_between(const int32_t* cu_seqlens, int64_t batch) {
  int64_t longest = 0;
  for (int64_t b = 0; b < batch; ++b) {
    longest = std::max<int64_t>(longest, cu_seqlens[b + 1] - cu_seqlens[b]);
  }
  return longest;
}

std::string valid_pages(const AttentionProblem& p) {
  if (p.num_pages == 0) return "none (num_pages 0)";
  return fmt::format("0 to {} (num_pages {})", p.num_pages - 1, p.num_pages);
}

// Only entries that hold keys are looked at: the others may be anything.
void check_page_table(const AttentionProblem& p, const SequenceArgs& a) {
  const int64_t longest = longest_of(a.seqused_k, p.batch);
  for (int64_t i = 0; i * p.page_size < std::min(longest, p.prefix_len); ++i) {
    if (a.prefix_pages[i] >= 0 && a.prefix_pages[i] < p.num_pages) continue;
    refuse("prefix_pages[{}] {}; accepted: {}", i, a.prefix_pages[i], valid_pages(p));
  }
  for (int64_t b = 0; b < p.batch; ++b) {
    check_pages(p, a, b, 0, std::max<int64_t>(0, a.seqused_k[b] - p.prefix_len));
  }
}

void check_cu_seqlens_q(const AttentionProblem& p, const SequenceArgs& a) {
  if (p.layout_q != Layout::kPacked) return;
  check_cu_seqlens("cu_seqlens_q", a.cu_seqlens_q, p.batch, rows_of_packed_q(p, a), p.seqlen_q);
}
void check_seqused_q(const AttentionProblem& p, const SequenceArgs& a) {
  if (!p.has_seqused_q) return;
  check_seqused("seqused_q", a.seqused_q, p.layout_q == Layout::kPacked ? a.cu_seqlens_q : nullptr,
                p.batch, p.seqlen_q);
}

}  // namespace

SequenceView sequence_view(const AttentionProblem& p, const SequenceArgs& a, int64_t b) {
  SequenceView view;
  if (p.layout_q == Layout::kPacked) {
    view.first_q = a.cu_seqlens_q[b];
    view.seqlen_q = a.cu_seqlens_q[b + 1] - view.first_q;
    view.lse_offset = view.first_q;
    view.lse_head_stride = rows_of_packed_q(p, a);
  } else {
    view.outer_q = b;
    view.seqlen_q = p.seqlen_q;
    view.lse_offset = b * p.heads_q * p.seqlen_q;
    view.lse_head_stride = p.seqlen_q;
  }
  view.seqlen_k = p.seqlen_k;
  if (p.layout_kv == Layout::kPacked) {
    view.first_k = a.cu_seqlens_k[b];
    view.seqlen_k = a.cu_seqlens_k[b + 1] - view.first_k;
  } else if (p.layout_kv == Layout::kDense) {
    view.outer_k = b;
  }
  if (p.has_seqused_q) view.seqlen_q = a.seqused_q[b];
  if (p.has_seqused_k) view.seqlen_k = a.seqused_k[b];
  view.offset_q = view.query_offset(p.q);
  view.offset_out = view.query_offset(p.out);
  view.offset_k = view.key_offset(p.k);
  view.offset_v = view.key_offset(p.v);
  return view;
}

int64_t rows_of_packed_q(const AttentionProblem& p, const SequenceArgs& a) {
  if (p.layout_q != Layout::kPacked) return 0;
  return a.total_q < 0 ? p.total_q : a.total_q;
}

int64_t rows_of_packed_k(const AttentionProblem& p, const SequenceArgs& a) {
  if (p.layout_kv != Layout::kPacked) return 0;
  return a.total_k < 0 ? p.total_k : a.total_k;
}

int64_t longest_queries(const AttentionProblem& p, const SequenceArgs& a) {
  if (p.has_seqused_q) return longest_of(a.seqused_q, p.batch);
  return p.layout_q == Layout::kPacked ? longest_between(a.cu_seqlens_q, p.batch) : p.seqlen_q;
}

int64_t longest_keys(const AttentionProblem& p, const SequenceArgs& a) {
  if (p.has_seqused_k) return longest_of(a.seqused_k, p.batch);
  return p.layout_kv == Layout::kPacked ? longest_between(a.cu_seqlens_k, p.batch) : p.seqlen_k;
}

void check_presence(const char* name, const void* data, bool wanted, bool needed,
                    const char* announced_by, int alignment) {
  if (data != nullptr && !wanted) {
    refuse("{} is given, but the problem has no {}; accepted: NULL", name, announced_by);
  }
  if (data == nullptr && wanted && needed) {
    refuse("{} is NULL; accepted: a pointer, as the problem has {}", name, announced_by);
  }
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    refuse("{} {} is misaligned; accepted: multiples of {}", name, data, alignment);
  }
}

void check_index_pointers(const AttentionProblem& p, const SequenceArgs& a) {
  const bool packed_q = p.layout_q == Layout::kPacked;
  const bool packed_k = p.layout_kv == Layout::kPacked;
  const bool paged = p.layout_kv == Layout::kPaged;
  check_total("total_q", packed_q, a.total_q, p.total_q);
  check_total("total_k", packed_k, a.total_k, p.total_k);
  const bool any = p.batch > 0;
  check_presence("cu_seqlens_q", a.cu_seqlens_q, packed_q, any, "packed q");
  check_presence("cu_seqlens_k", a.cu_seqlens_k, packed_k, any, "packed k");
  check_presence("seqused_q", a.seqused_q, p.has_seqused_q, any, "seqused_q");
  check_presence("seqused_k", a.seqused_k, p.has_seqused_k, any, "seqused_k");
  check_presence("page_table", a.page_table, paged, any && p.pages_per_seq > 0, "paged k");
  check_presence("prefix_pages", a.prefix_pages, p.prefix_len > 0, any, "prefix_len");
}

void check_query_pointers(const AttentionProblem& p, const SequenceArgs& a) {
  const bool packed = p.layout_q == Layout::kPacked, any = p.batch > 0;
  check_total("total_q", packed, a.total_q, p.total_q);
  check_presence("cu_seqlens_q", a.cu_seqlens_q, packed, any, "packed q");
  check_presence("seqused_q", a.seqused_q, p.has_seqused_q, any, "seqused_q");
}

void check_query_indices(const AttentionProblem& p, const SequenceArgs& a) {
  if (p.batch == 0) return;
  check_cu_seqlens_q(p, a);
  check_seqused_q(p, a);
}

void check_pages(const AttentionProblem& p, const SequenceArgs& a, int64_t b, int64_t first,
                 int64_t end) {
  for (int64_t h = 0; h < p.page_table_heads; ++h) {
    for (int64_t i = first / p.page_size; i < ceil_div(end, p.page_size); ++i) {
      const int32_t page = page_of(p, a, b, h, i);
      if (page >= 0 && page < p.num_pages) continue;
      const std::string head = p.page_table_heads > 1 ? fmt::format("{}, ", h) : "";
      refuse("page_table[{}, {}{}] {}; accepted: {}", b, head, i, page, valid_pages(p));
    }
  }
}

void check_index_tensors(const AttentionProblem& p, const SequenceArgs& a) {
  if (p.batch == 0) return;
  const bool packed_k = p.layout_kv == Layout::kPacked;
  check_cu_seqlens_q(p, a);
  if (packed_k) {
    check_cu_seqlens("cu_seqlens_k", a.cu_seqlens_k, p.batch, rows_of_packed_k(p, a), p.seqlen_k);
  }
  check_seqused_q(p, a);
  if (p.has_seqused_k) {
    check_seqused("seqused_k", a.seqused_k, packed_k ? a.cu_seqlens_k : nullptr, p.batch,
                  p.seqlen_k);
  }
  if (p.layout_kv == Layout::kPaged) check_page_table(p, a);
}

}  // namespace fa4::internal
