#include "distributed/local_calls.h"

#include <algorithm>

namespace fa4::internal {
namespace {

// The call of one chunk over keys `seen` of the whole.
LocalCall local_call_of(const MaskSpec& mask, const Chunk& chunk, const KeyRange& seen) {
  LocalCall local{
      .first_query = chunk.slot, .queries = chunk.length, .start = chunk.start, .window = {}};
  const bool left = mask.is_bounded_left(), right = mask.is_bounded_right();
  const int64_t end_query = chunk.start + chunk.length;
  const int64_t first = left ? std::max(seen.begin, chunk.start - mask.window_left) : seen.begin;
  const int64_t end = right ? std::min(seen.end, end_query + mask.window_right) : seen.end;
  if (first >= end) return local;
  local.first_key = first;
  local.keys = end - first;
  // The library sets the last query at the last key; here it stands `behind` keys behind it.
  const int64_t behind = end_query - end;
  if (left && end_query - 1 - mask.window_left > first) {
    local.window.window_left = mask.window_left - behind;
    local.window.window_bounds |= 1;
  }
  if (right && chunk.start + mask.window_right < end - 1) {
    local.window.window_right = mask.window_right + behind;
    local.window.window_bounds |= 2;
  }
  return local;
}

bool continues(const LocalCall& before, const LocalCall& next) {
  return before.window.is_full() && next.window.is_full() && before.keys > 0 &&
         before.first_key == next.first_key && before.keys == next.keys &&
         before.first_query + before.queries == next.first_query;
}

// Appends `local`, or extends the call before it where they are neighbours that see the same keys.
void add_call(const LocalCall& local, std::vector<LocalCall>& local_calls) {
  if (!local_calls.empty() && continues(local_calls.back(), local)) {
    local_calls.back().queries += local.queries;
  } else {
    local_calls.push_back(local);
  }
}

// Of one chunk, over chunks of keys by the slots of whom holds them: neighbours that are seen
// without a mask are one call.
std::vector<LocalCall> local_calls_over(const MaskSpec& mask, const Chunk& queries,
                                        const std::vector<Chunk>& keys) {
  std::vector<LocalCall> local_calls;
  for (const Chunk& held : keys) {
    LocalCall local = local_call_of(mask, queries, {held.start, held.start + held.length});
    if (local.keys == 0) continue;
    local.first_key += held.slot - held.start;
    const bool joins = !local_calls.empty() && local_calls.back().window.is_full() &&
                       local.window.is_full() &&
                       local_calls.back().first_key + local_calls.back().keys == local.first_key;
    if (joins) {
      local_calls.back().keys += local.keys;
    } else {
      local_calls.push_back(local);
    }
  }
  return local_calls;
}

bool is_causal(const MaskSpec& mask) {
  return !mask.is_bounded_left() && mask.is_bounded_right() && mask.window_right == 0;
}

}  // namespace

std::vector<LocalCall> local_calls_of(const MaskSpec& mask, const std::vector<Chunk>& chunks,
                                      int64_t seqlen) {
  std::vector<LocalCall> local_calls;
  for (const Chunk& chunk : chunks) {
    add_call(local_call_of(mask, chunk, {0, seqlen}), local_calls);
  }
  return local_calls;
}

std::vector<LocalCall> ring_local_calls_of(const MaskSpec& mask, const std::vector<Chunk>& queries,
                                           const std::vector<Chunk>& keys, bool own) {
  // Slots ascend as tokens do: a causal mask of the tokens is one of the slots.
  if (mask.is_full() || (own && is_causal(mask))) {
    const int64_t rows = queries.back().slot + queries.back().length;
    const int64_t held = keys.back().slot + keys.back().length;
    return {{.queries = rows, .start = queries.front().start, .keys = held, .window = mask}};
  }
  std::vector<LocalCall> local_calls;
  for (const Chunk& chunk : queries) {
    const std::vector<LocalCall> seen = local_calls_over(mask, chunk, keys);
    if (own && seen.empty()) local_calls.push_back(local_call_of(mask, chunk, {0, 0}));
    for (const LocalCall& local : seen) {
      if (own) {
        local_calls.push_back(local);
      } else {
        add_call(local, local_calls);
      }
    }
  }
  return local_calls;
}

bool can_cut_packed(const MaskSpec& mask) {
  return mask.is_full() || (mask.is_bounded_right() && mask.window_right <= 0);
}

std::vector<LocalCall> packed_local_calls_of(const MaskSpec& mask, const std::vector<Chunk>& chunks,
                                             int64_t total) {
  std::vector<LocalCall> local_calls;
  for (const Chunk& chunk : chunks) {
    const int64_t first =
        mask.is_bounded_left() ? std::max<int64_t>(0, chunk.start - mask.window_left) : 0;
    const int64_t end = mask.is_full() ? total : chunk.start + chunk.length;
    local_calls.push_back({.first_query = chunk.slot,
                           .queries = chunk.length,
                           .start = chunk.start,
                           .first_key = std::min(first, end),
                           .keys = end - std::min(first, end),
                           .window = mask});
  }
  return local_calls;
}

AttentionProblem problem_of(const AttentionProblem& whole, const LocalCall& local,
                            const CallHeads& heads) {
  ProblemDesc desc = whole;
  const bool packed = whole.layout_q == Layout::kPacked;
  const auto rows = [&](int64_t seqlen, int64_t of_row, int64_t dim) {
    return Strides{packed ? 0 : seqlen * of_row * dim, of_row * dim, dim};
  };
  desc.heads_q = heads.heads_q;
  desc.heads_kv = heads.heads_kv;
  desc.seqlen_q = packed ? std::min(whole.seqlen_q, local.queries) : local.queries;
  desc.seqlen_k = packed ? std::min(whole.seqlen_k, local.keys) : local.keys;
  desc.total_q = packed ? local.queries : 0;
  desc.total_k = packed ? local.keys : 0;
  desc.causal = false;
  desc.window = local.window;
  desc.q = rows(heads.local_seqlen, whole.heads_q, whole.head_dim);
  desc.dq = rows(heads.local_seqlen, heads.dq_heads, whole.head_dim);
  desc.out = desc.dout = rows(heads.local_seqlen, whole.heads_q, whole.head_dim_v);
  desc.k = desc.dk = rows(heads.key_rows, heads.heads_kv, whole.head_dim);
  desc.v = desc.dv = rows(heads.key_rows, heads.heads_kv, whole.head_dim_v);
  return AttentionProblem::make(desc);
}

}  // namespace fa4::internal
