// Where a CTA keeps the ranks of sequences by the lengths of their keys. Host and device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

// Sequences that are ranked at most.
inline constexpr int kMostRanked = 128;

struct alignas(16) LengthRanks {
  uint32_t order[kMostRanked];     // of a sequence: rank_order
  int32_t sorted[kMostRanked];     // sequences, those of the greatest order first
  int32_t parts_end[kMostRanked];  // whole parts of all sequences up to this one
  int32_t whole_parts;             // of all sequences, each head
  int32_t rests;                   // sequences that have keys behind them
};

// Orders sequences by their keys, of equal ones by their number. Those that have no tile come last.
constexpr uint32_t rank_order(int batch, bool exists, int keys) {
  constexpr uint32_t kMostLength = 0xffffffffu / kMostRanked;
  const auto length = static_cast<uint32_t>(keys) + 1;
  const uint32_t number = kMostRanked - 1 - static_cast<uint32_t>(batch);
  return exists ? (length < kMostLength ? length : kMostLength) * kMostRanked + number : number;
}

}  // namespace fa4
