// Which key blocks a tile of query rows visits, and which of them need a mask. Host and device.
#pragma once

namespace fa4 {

// Keys [begin, end) that a query at `position` sees.
struct KeyBounds {
  int begin;
  int end;
  constexpr bool is_empty() const { return begin >= end; }
};

// `position` = row + seqlen_k - seqlen_q. Windows are at most 2^30 - 1 and lengths below 2^30 -
// 512, so that nothing overflows, not even for rows of a tile that lie past the sequence's end.
constexpr KeyBounds key_bounds(int position, int seqlen_k, int window_left, int window_right) {
  const int begin = position - window_left;
  const int end = position + window_right + 1;
  return {begin > 0 ? begin : 0, end < seqlen_k ? end : seqlen_k};
}

// Blocks n_block_max - 1 down to n_block_min.
struct BlockSpan {
  int n_block_min;
  int n_block_max;

  constexpr bool is_empty() const { return n_block_max <= n_block_min; }
  constexpr bool contains(int n) const { return n >= n_block_min && n < n_block_max; }
};

// The blocks that one or the other visits; where both do, they leave no gap.
constexpr BlockSpan span_of_either(BlockSpan a, BlockSpan b) {
  if (b.is_empty()) return a;
  if (a.is_empty()) return b;
  return {a.n_block_min < b.n_block_min ? a.n_block_min : b.n_block_min,
          a.n_block_max > b.n_block_max ? a.n_block_max : b.n_block_max};
}

// The blocks that a tile visits; those in [full_begin, full_end) need no mask.
struct BlockRange : BlockSpan {
  int full_begin;
  int full_end;
};

// `first` and `last` are the bounds of the tile's first and last row.
constexpr BlockRange block_range(KeyBounds first, KeyBounds last, int tile_n) {
  const int end = last.end > 0 ? last.end : 0;
  BlockRange r{{first.begin / tile_n, (end + tile_n - 1) / tile_n},
               (last.begin + tile_n - 1) / tile_n,
               first.end > 0 ? first.end / tile_n : 0};
  if (r.n_block_max < r.n_block_min) r.n_block_max = r.n_block_min;
  return r;
}

}  // namespace fa4
