// What every execution says of its sequences: index tensors, totals, and where each sequence lies.
#pragma once

#include <cstdint>

#include "problem/attention_problem.h"

namespace fa4::internal {

struct SequenceArgs {
  const int32_t* cu_seqlens_q = nullptr;  // (batch + 1), packed q
  const int32_t* cu_seqlens_k = nullptr;  // (batch + 1), packed k
  const int32_t* seqused_q = nullptr;     // (batch)
  const int32_t* seqused_k = nullptr;     // (batch)
  const int32_t* page_table = nullptr;    // (batch, [heads_kv,] pages_per_seq), by strides
  const int32_t* prefix_pages = nullptr;  // of the keys that all sequences share
  int64_t total_q = -1;  // packed: rows actually there, at most the problem's; -1: the problem's
  int64_t total_k = -1;
};

// One sequence of the batch: where it starts and how long it is. CPU only (reads the index
// tensors).
struct SequenceView {
  int64_t seqlen_q = 0;  // seqused_q applied
  int64_t seqlen_k = 0;  // seqused_k applied
  // The first row of q, out and their gradients, and of k, v and theirs: an index of the batch
  // (packed: 0), and a row. Paged: 0, rows are found through page_table.
  int64_t outer_q = 0, first_q = 0;
  int64_t outer_k = 0, first_k = 0;
  int64_t offset_q = 0;  // elements from q's base to row 0 of this sequence, head 0
  int64_t offset_out = 0;
  int64_t offset_k = 0;
  int64_t offset_v = 0;
  int64_t lse_offset = 0;       // elements to (this sequence, head 0, row 0)
  int64_t lse_head_stride = 0;  // elements between heads

  // Elements from a tensor's base to its row 0 of this sequence, head 0: on q's side, on k's.
  int64_t query_offset(const Strides& s) const { return outer_q * s.batch + first_q * s.seqlen; }
  int64_t key_offset(const Strides& s) const { return outer_k * s.batch + first_k * s.seqlen; }
};
SequenceView sequence_view(const AttentionProblem& problem, const SequenceArgs& args, int64_t b);

// Entry `i` of the pages of sequence b and key head `head`.
inline int32_t page_of(const AttentionProblem& p, const SequenceArgs& a, int64_t b, int64_t head,
                       int64_t i) {
  return a.page_table[b * p.page_table.batch + i * p.page_table.seqlen + head * p.page_table.head];
}

// The page and row of key `n` of sequence b and key head `head`.
struct PageRow {
  int64_t page = 0, row = 0;
};
inline PageRow page_row_of(const AttentionProblem& p, const SequenceArgs& a, int64_t b,
                           int64_t head, int64_t n) {
  if (n < p.prefix_len) return {a.prefix_pages[n / p.page_size], n % p.page_size};
  const int64_t own = n - p.prefix_len;
  return {page_of(p, a, b, head, own / p.page_size), own % p.page_size};
}

// Rows of packed q, and of packed k, that are there in this execution; 0 in another layout,
// whatever the arguments say.
int64_t rows_of_packed_q(const AttentionProblem& problem, const SequenceArgs& args);
int64_t rows_of_packed_k(const AttentionProblem& problem, const SequenceArgs& args);

// The longest sequence of queries, and of keys, of this execution: the problem's may be far longer.
// CPU only (reads the index tensors).
int64_t longest_queries(const AttentionProblem& problem, const SequenceArgs& args);
int64_t longest_keys(const AttentionProblem& problem, const SequenceArgs& args);

// An index tensor or a sink is there exactly when the problem announced it: refuses what is not
// `wanted`, and, when `needed` too, what is missing, naming `announced_by`.
void check_presence(const char* name, const void* data, bool wanted, bool needed,
                    const char* announced_by, int alignment = 4);

// Totals within the problem's; pointers where the problem announced them.
void check_index_pointers(const AttentionProblem& problem, const SequenceArgs& args);

// The same of the queries' side alone.
void check_query_pointers(const AttentionProblem& problem, const SequenceArgs& args);

// The tensors' own numbers, of the queries' side alone. CPU only.
void check_query_indices(const AttentionProblem& problem, const SequenceArgs& args);

// The entries of page_table that hold keys [first, end) of sequence b, counted behind the prefix:
// page numbers within num_pages. The others may be anything. CPU only.
void check_pages(const AttentionProblem& problem, const SequenceArgs& args, int64_t b,
                 int64_t first, int64_t end);

// The tensors' own numbers: cu_seqlens ascending from 0 to at most the total, lengths within the
// maxima, page numbers within num_pages. CPU only.
void check_index_tensors(const AttentionProblem& problem, const SequenceArgs& args);

}  // namespace fa4::internal
