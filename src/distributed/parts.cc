#include "distributed/parts.h"

#include <algorithm>

namespace fa4::internal {
namespace {

// The call of one chunk over keys `seen` of the whole.
Part part_of(const MaskSpec& mask, const Chunk& chunk, const KeyRange& seen) {
  Part part{.first_query = chunk.slot, .queries = chunk.length, .start = chunk.start, .window = {}};
  const bool left = mask.is_bounded_left(), right = mask.is_bounded_right();
  const int64_t end_query = chunk.start + chunk.length;
  const int64_t first = left ? std::max(seen.begin, chunk.start - mask.window_left) : seen.begin;
  const int64_t end = right ? std::min(seen.end, end_query + mask.window_right) : seen.end;
  if (first >= end) return part;
  part.first_key = first;
  part.keys = end - first;
  // The library sets the last query at the last key; here it stands `behind` keys behind it.
  const int64_t behind = end_query - end;
  if (left && end_query - 1 - mask.window_left > first) {
    part.window.window_left = mask.window_left - behind;
    part.window.window_bounds |= 1;
  }
  if (right && chunk.start + mask.window_right < end - 1) {
    part.window.window_right = mask.window_right + behind;
    part.window.window_bounds |= 2;
  }
  return part;
}

bool continues(const Part& before, const Part& next) {
  return before.window.is_full() && next.window.is_full() && before.keys > 0 &&
         before.first_key == next.first_key && before.keys == next.keys &&
         before.first_query + before.queries == next.first_query;
}

// Appends `part`, or extends the part before it where they are neighbours that see the same keys.
void add_part(const Part& part, std::vector<Part>& parts) {
  if (!parts.empty() && continues(parts.back(), part)) {
    parts.back().queries += part.queries;
  } else {
    parts.push_back(part);
  }
}

// Of one chunk, over chunks of keys by the slots of whom holds them: neighbours that are seen
// without a mask are one part.
std::vector<Part> parts_over(const MaskSpec& mask, const Chunk& queries,
                             const std::vector<Chunk>& keys) {
  std::vector<Part> parts;
  for (const Chunk& held : keys) {
    Part part = part_of(mask, queries, {held.start, held.start + held.length});
    if (part.keys == 0) continue;
    part.first_key += held.slot - held.start;
    const bool joins = !parts.empty() && parts.back().window.is_full() && part.window.is_full() &&
                       parts.back().first_key + parts.back().keys == part.first_key;
    if (joins) {
      parts.back().keys += part.keys;
    } else {
      parts.push_back(part);
    }
  }
  return parts;
}

bool is_causal(const MaskSpec& mask) {
  return !mask.is_bounded_left() && mask.is_bounded_right() && mask.window_right == 0;
}

}  // namespace

std::vector<Part> parts_of(const MaskSpec& mask, const std::vector<Chunk>& chunks, int64_t seqlen) {
  std::vector<Part> parts;
  for (const Chunk& chunk : chunks) {
    add_part(part_of(mask, chunk, {0, seqlen}), parts);
  }
  return parts;
}

std::vector<Part> ring_parts_of(const MaskSpec& mask, const std::vector<Chunk>& queries,
                                const std::vector<Chunk>& keys, bool own) {
  // Slots ascend as tokens do: a causal mask of the tokens is one of the slots.
  if (mask.is_full() || (own && is_causal(mask))) {
    const int64_t rows = queries.back().slot + queries.back().length;
    const int64_t held = keys.back().slot + keys.back().length;
    return {{.queries = rows, .start = queries.front().start, .keys = held, .window = mask}};
  }
  std::vector<Part> parts;
  for (const Chunk& chunk : queries) {
    const std::vector<Part> seen = parts_over(mask, chunk, keys);
    if (own && seen.empty()) parts.push_back(part_of(mask, chunk, {0, 0}));
    for (const Part& part : seen) {
      if (own) {
        parts.push_back(part);
      } else {
        add_part(part, parts);
      }
    }
  }
  return parts;
}

bool can_cut_packed(const MaskSpec& mask) {
  return mask.is_full() || (mask.is_bounded_right() && mask.window_right <= 0);
}

std::vector<Part> packed_parts_of(const MaskSpec& mask, const std::vector<Chunk>& chunks,
                                  int64_t total) {
  std::vector<Part> parts;
  for (const Chunk& chunk : chunks) {
    const int64_t first =
        mask.is_bounded_left() ? std::max<int64_t>(0, chunk.start - mask.window_left) : 0;
    const int64_t end = mask.is_full() ? total : chunk.start + chunk.length;
    parts.push_back({.first_query = chunk.slot,
                     .queries = chunk.length,
                     .start = chunk.start,
                     .first_key = std::min(first, end),
                     .keys = end - std::min(first, end),
                     .window = mask});
  }
  return parts;
}

AttentionProblem problem_of(const AttentionProblem& whole, const Part& part,
                            const PartHeads& heads) {
  ProblemDesc desc = whole;
  const bool packed = whole.layout_q == Layout::kPacked;
  const auto rows = [&](int64_t seqlen, int64_t of_row, int64_t dim) {
    return Strides{packed ? 0 : seqlen * of_row * dim, of_row * dim, dim};
  };
  desc.heads_q = heads.heads_q;
  desc.heads_kv = heads.heads_kv;
  desc.seqlen_q = packed ? std::min(whole.seqlen_q, part.queries) : part.queries;
  desc.seqlen_k = packed ? std::min(whole.seqlen_k, part.keys) : part.keys;
  desc.total_q = packed ? part.queries : 0;
  desc.total_k = packed ? part.keys : 0;
  desc.causal = false;
  desc.window = part.window;
  desc.q = rows(heads.local_seqlen, whole.heads_q, whole.head_dim);
  desc.dq = rows(heads.local_seqlen, heads.dq_heads, whole.head_dim);
  desc.out = desc.dout = rows(heads.local_seqlen, whole.heads_q, whole.head_dim_v);
  desc.k = desc.dk = rows(heads.key_rows, heads.heads_kv, whole.head_dim);
  desc.v = desc.dv = rows(heads.key_rows, heads.heads_kv, whole.head_dim_v);
  return AttentionProblem::make(desc);
}

}  // namespace fa4::internal
