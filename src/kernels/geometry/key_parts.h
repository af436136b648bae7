// The parts that a row's keys are cut into, at multiples of their length. Host and device.
#pragma once

#include "kernels/base/integers.h"
#include "kernels/geometry/block_range.h"

namespace fa4 {

// Parts begin at multiples of so many keys, which are whole blocks of every kernel.
inline constexpr int kPartStep = 128;

// Keys of a part of a sequence that has `seqlen_k`. `keys` is the plan's length of parts, the same
// for all sequences; 0: as long as it takes for 2^most_log2 of them to be all keys of this one.
constexpr int part_keys_of(int keys, int most_log2, int seqlen_k) {
  const int steps = (seqlen_k + kPartStep - 1) / kPartStep;
  const int even = (steps + (1 << most_log2) - 1) >> most_log2;
  return keys > 0 ? keys : (even > 0 ? even : 1) * kPartStep;
}

// Parts [begin, end): those behind and before them nobody asks for.
struct PartSpan {
  int begin;
  int end;
  constexpr int count() const { return end - begin; }
  constexpr bool contains(int part) const { return part >= begin && part < end; }
};

// The part that a key is in. Divides only where it is not the first: without a window a tile's
// first key is there, and somebody waits for the answer.
constexpr int part_of_key(int key, int part_keys) {
  if (key < part_keys) return 0;
  return static_cast<int>(static_cast<unsigned>(key) / static_cast<unsigned>(part_keys));
}

// The parts that rows see whose first and last have these bounds; none where they see no key, so
// that a tile that is handed out has blocks in its part.
constexpr PartSpan part_span(KeyBounds first, KeyBounds last, int part_keys) {
  const int begin = part_of_key(first.begin, part_keys);
  if (first.begin >= last.end) return {begin, begin};
  return {begin, part_of_key(last.end - 1, part_keys) + 1};
}

// Whether the part is one of part_span's, without the divisions.
constexpr bool sees_part(KeyBounds first, KeyBounds last, int part, int part_keys) {
  const int64_t begin = int64_t{part} * part_keys, end = begin + part_keys;
  return (first.begin > begin ? first.begin : begin) < (last.end < end ? last.end : end);
}

// Those of `blocks` that lie in part `part`; each part has `part_blocks` blocks.
constexpr BlockRange blocks_of_part(BlockRange blocks, int part, int part_blocks) {
  const int begin = part * part_blocks, end = begin + part_blocks;
  if (blocks.n_block_min < begin) blocks.n_block_min = begin;
  if (blocks.n_block_max > end) blocks.n_block_max = end;
  if (blocks.n_block_max < blocks.n_block_min) blocks.n_block_max = blocks.n_block_min;
  return blocks;
}

}  // namespace fa4
