// In which order the works of a backward come: blocks of keys of key heads. Host and device.
#pragma once

#include "kernels/backward/traits.h"
#include "kernels/geometry/block_range.h"
#include "kernels/geometry/section_order.h"

namespace fa4 {

constexpr bool goes_down(const BwdOrder& order, int head, int heads) {
  return head >= heads - order.heads_down;
}

struct BlockOfKeys {
  int batch;
  int head;  // of a sequence's key heads
  int block;
};

// The `index`th of `batch` x `heads` x `blocks`.
constexpr BlockOfKeys block_of_keys(const BwdOrder& order, uint32_t index, uint32_t batch,
                                    uint32_t heads, uint32_t blocks) {
  const uint32_t down = static_cast<uint32_t>(order.heads_down), up = heads - down;
  const uint32_t pairs = down < up ? down : up, others = heads - 2 * pairs;  // of a sequence
  const uint32_t works_of_others = batch * others * blocks;
  // The heads of this kind in all sequences, and the first of them in a sequence.
  uint32_t heads_of_kind = others, first = down > up ? 2 * pairs : pairs;
  HeadAndBlock at;
  if (index < works_of_others) {
    const bool last_first = down <= up && order.last_keys_first != 0;
    at = section_order(index, batch * others, blocks, static_cast<uint32_t>(order.sections),
                       last_first);
  } else {
    index -= works_of_others;
    const Section of = section_of_tile(index, batch * pairs, 2 * blocks,
                                       static_cast<uint32_t>(order.pair_sections));
    index -= of.first_head * blocks;  // as if the sections before were of one way
    const bool is_down = index - of.first_head * blocks >= of.heads * blocks;
    if (is_down) index -= of.heads * blocks;
    at = tile_of_section(of, index, blocks, !is_down && order.last_keys_first != 0);
    heads_of_kind = pairs;
    first = is_down ? up : 0;
  }
  const int sequence = at.head / static_cast<int>(heads_of_kind);
  const int head = at.head - sequence * static_cast<int>(heads_of_kind);
  return {sequence, head + static_cast<int>(first), at.block};
}

// Blocks of queries as the works of a head visit them, from n_block_min up: those of a head that
// goes down are counted by negatives, so that every role goes up.
constexpr BlockRange in_order_of_visits(const BlockRange& rows, bool goes_down) {
  if (!goes_down) return rows;
  return {{1 - rows.n_block_max, 1 - rows.n_block_min}, 1 - rows.full_end, 1 - rows.full_begin};
}
constexpr int block_of_visit(int visit) { return visit < 0 ? -visit : visit; }

}  // namespace fa4
