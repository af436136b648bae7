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

// The last one of which rows up to `end_row` see any. A block that only rows past the sequence's
// end would see counts where it visits the rows' block too.
constexpr int last_key_block(int end_row, int seqlen_q, int seqlen_k, int window_right, int keys) {
  const int end = end_row + seqlen_k - seqlen_q + window_right;
  return ((end < seqlen_k ? end : seqlen_k) - 1) / keys;
}

// Deterministic backwards add to a block of rows in turns: how many blocks of keys that visit the
// rows [first_row, end_row) come before block `n`, from the first one on or from the last.
constexpr int turn_of_block(int n, int first_row, int end_row, int seqlen_q, int seqlen_k,
                            int window_left, int window_right, int keys, bool last_first) {
  return last_first ? last_key_block(end_row, seqlen_q, seqlen_k, window_right, keys) - n
                    : n - first_key_block(first_row, seqlen_q, seqlen_k, window_left, keys);
}

}  // namespace fa4
