// How a forward kernel reads keys and values that lie in pages. Host and device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

enum class Pages {
  kNone,     // they do not: rows of a tensor, one after the other
  kBoxes,    // TMA takes boxes of 8 rows or more out of a page, a slab of them at a time
  kGroups,   // likewise, all slabs at a time: groups of 8 rows lie at equal distances in all pages
  kRows,     // threads copy them row by row: a page may have any size
  kGathers,  // likewise, by TMA, four rows at a time (Blackwell): they are rows of one matrix
};

constexpr int greatest_common_divisor(int a, int b) {
  while (b != 0) {
    const int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Rows that TMA takes at a time where a block of keys has `block_rows`, 16 or a multiple: the most
// that never reach from one page into the next, nor from one block, nor from the keys that all
// sequences share into a sequence's own, which begin in a page of their own. Multiples of 8 keep
// the pattern in which 16-byte pieces are permuted whole (tile/slab.h).
constexpr int page_box_rows(int page_size, int prefix_len, int block_rows) {
  return greatest_common_divisor(block_rows, greatest_common_divisor(page_size, prefix_len));
}

// n / page_size, for n from 0 to 2^31 - 1, is the high word of 2 n multiplier, shifted: the factor
// is 2^(31 + shift) / page_size rounded up, by less than 1, which n times is less than 2^(31 +
// shift) / page_size.
struct PageDivision {
  uint32_t multiplier;
  int32_t shift;
};
constexpr PageDivision page_division(int32_t page_size) {
  const auto divisor = static_cast<uint64_t>(page_size);
  int32_t shift = 0;
  while (uint64_t{1} << shift < divisor) ++shift;
  const uint64_t dividend = uint64_t{1} << (31 + shift);
  return {static_cast<uint32_t>((dividend + divisor - 1) / divisor), shift};
}

constexpr Pages pages_of(int page_size, int prefix_len) {
  if (page_size == 0) return Pages::kNone;
  return page_size % 8 == 0 && prefix_len % 8 == 0 ? Pages::kBoxes : Pages::kRows;
}

}  // namespace fa4
