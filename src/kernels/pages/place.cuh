// Where the keys of a block lie that are in pages.
#pragma once

#include "kernels/base/integers.h"
#include "kernels/forward/params.h"

namespace fa4 {

// A key, or the first one of a box, as its page table has it: not clamped, so that nobody waits for
// the entry until it is used. Row -1: a key that is not there.
struct PagePlace {
  int entry;
  int row;
};

// Of a key head and a sequence with so many keys in use. Entries of the table past them are not
// read.
__device__ inline PagePlace page_place(const PageParams& pages, int batch, int head, int seqlen_k,
                                       int key) {
  if (key >= seqlen_k) return {0, -1};
  const bool is_shared = key < pages.prefix_len;
  const int row = is_shared ? key : key - pages.prefix_len;
  const int index = static_cast<int>(
      __umulhi(2 * static_cast<uint32_t>(row), pages.division.multiplier) >> pages.division.shift);
  const int32_t* entry = is_shared ? pages.prefix_pages + index
                                   : pages.table + batch * pages.stride_batch +
                                         head * pages.stride_head + index * pages.stride_entry;
  return {*entry, row - index * pages.page_size};
}

// Entries are clamped, since nobody can check them without a synchronisation. num_pages for a key
// that is not there: TMA reads zeros.
__device__ inline int page_of(const PageParams& pages, const PagePlace& place) {
  const int last = pages.num_pages - 1;
  const int page = place.entry < 0 ? 0 : place.entry > last ? last : place.entry;
  return place.row < 0 ? pages.num_pages : page;
}

}  // namespace fa4
