// What one append is given: new keys and values, and the cache of a problem that they go into.
#pragma once

#include <cstdint>

#include "problem/sequence_args.h"

namespace fa4::internal {

// Pairs that a rotary embedding turns: (i, i + rotary_dim / 2), or (2 i, 2 i + 1).
enum class RotaryPairs : int32_t { kHalves = 0, kInterleaved = 1 };

// The cache is the problem's k and v, dense or paged; the new rows lie as its queries do, one a
// query: (batch, seqlen_q, heads_kv, dim), or packed by cu_seqlens_q. New row i of sequence b
// becomes key positions[b] + i.
struct AppendArgs : SequenceArgs {  // of which cu_seqlens_q, seqused_q, page_table, total_q count
  const void* k = nullptr;          // new, of the problem's dtype
  const void* v = nullptr;
  void* k_cache = nullptr;
  void* v_cache = nullptr;
  // Of the cache, by the problem's strides, when it has descales: numbers are stored over them.
  const float* k_descale = nullptr;
  const float* v_descale = nullptr;
  const int32_t* positions = nullptr;  // (batch)
  Strides new_k, new_v;                // all zero: contiguous
  // NULL, or both (rotary_rows, rotary_dim / 2): key j is turned by row j.
  const void* cos = nullptr;
  const void* sin = nullptr;
  DType rotary_dtype{};  // of those; none: the problem's dtype
  RotaryPairs rotary_pairs = RotaryPairs::kHalves;
  int64_t rotary_dim = 0;
  int64_t rotary_rows = 0;
  void* stream = nullptr;
};

// How many of a sequence's new rows there are.
int64_t new_rows_of(const AttentionProblem& problem, const AppendArgs& args, int64_t b);

// Defaults filled in, and what holds on every device checked, because no tensor is read for it.
// Throws Error{kInvalidArgument}.
AppendArgs completed(const AttentionProblem& problem, AppendArgs args);

// The above and, since host memory can be read, the index tensors' own numbers.
AppendArgs checked(const AttentionProblem& problem, AppendArgs args);

}  // namespace fa4::internal
