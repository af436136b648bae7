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
  const uint32_t works_up = batch * up * blocks;
  const bool is_down = index >= works_up;
  const uint32_t heads_this_way = is_down ? down : up;
  const HeadAndBlock at =
      section_order(is_down ? index - works_up : index, batch * heads_this_way, blocks,
                    static_cast<uint32_t>(is_down ? order.sections_down : order.sections),
                    !is_down && order.last_keys_first != 0);
  const int sequence = at.head / static_cast<int>(heads_this_way);
  return {
      sequence,
      at.head - sequence * static_cast<int>(heads_this_way) + static_cast<int>(is_down ? up : 0),
      at.block};
}

// Blocks of queries as the works of a head visit them, from n_block_min up: those of a head that
// goes down are counted by negatives, so that every role goes up.
constexpr BlockRange in_order_of_visits(const BlockRange& rows, bool goes_down) {
  if (!goes_down) return rows;
  return {{1 - rows.n_block_max, 1 - rows.n_block_min}, 1 - rows.full_end, 1 - rows.full_begin};
}
constexpr int block_of_visit(int visit) { return visit < 0 ? -visit : visit; }

}  // namespace fa4
