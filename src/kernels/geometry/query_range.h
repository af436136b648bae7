// Which query rows see a key: the other way round of block_range.h, whose ranges of blocks serve
// both. Host and device.
#pragma once

#include "kernels/geometry/block_range.h"

namespace fa4 {

// Query rows [begin, end) that see a key.
using QueryBounds = KeyBounds;

// Windows are at most 2^30 - 1 and lengths below 2^30 - 512, so that nothing overflows, not even
// for keys of a block that lie past the sequence's end; those nobody sees.
constexpr QueryBounds query_bounds(int key, int seqlen_q, int seqlen_k, int window_left,
                                   int window_right) {
  const int row = key - seqlen_k + seqlen_q;  // whose position is the key's
  const int begin = row - window_right;
  const int end = key < seqlen_k ? row + window_left + 1 : 0;
  return {begin > 0 ? begin : 0, end < seqlen_q ? end : seqlen_q};
}

// The first block of `keys` keys of which rows from `first_row` on see any. The others that a block
// of rows sees follow without a gap, since both ends of what a key's rows are grow from key to key.
constexpr int first_key_block(int first_row, int seqlen_q, int seqlen_k, int window_left,
                              int keys) {
  const int key = first_row + seqlen_k - seqlen_q - window_left;
  return (key > 0 ? key : 0) / keys;
}

}  // namespace fa4
