#include "distributed/parts.h"

#include <algorithm>

namespace fa4::internal {
namespace {

// Of one chunk.
Part part_of(const MaskSpec& mask, const Chunk& chunk, int64_t seqlen) {
  Part part{.first_query = chunk.slot, .queries = chunk.length, .start = chunk.start, .window = {}};
  const bool left = mask.is_bounded_left(), right = mask.is_bounded_right();
  const int64_t end_query = chunk.start + chunk.length;
  const int64_t first = left ? std::max<int64_t>(0, chunk.start - mask.window_left) : 0;
  const int64_t end = right ? std::min(seqlen, end_query + mask.window_right) : seqlen;
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

}  // namespace

std::vector<Part> parts_of(const MaskSpec& mask, const std::vector<Chunk>& chunks, int64_t seqlen) {
  std::vector<Part> parts;
  for (const Chunk& chunk : chunks) {
    const Part part = part_of(mask, chunk, seqlen);
    if (!parts.empty() && continues(parts.back(), part)) {
      parts.back().queries += part.queries;
    } else {
      parts.push_back(part);
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
  desc.k = desc.dk = rows(whole.seqlen_k, heads.heads_kv, whole.head_dim);
  desc.v = desc.dv = rows(whole.seqlen_k, heads.heads_kv, whole.head_dim_v);
  return AttentionProblem::make(desc);
}

}  // namespace fa4::internal
