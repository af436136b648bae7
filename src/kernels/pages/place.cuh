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

// A sequence's row of the page table, or that of one of its key heads.
__device__ inline const int32_t* page_entries(const PageParams& pages, int batch, int head) {
  return pages.table + batch * pages.stride_batch + head * pages.stride_head;
}

// Of a sequence with so many keys in use and such a row of the table. Entries past them are not
// read.
__device__ inline PagePlace page_place(const PageParams& pages, const int32_t* entries,
                                       int seqlen_k, int key) {
  if (key >= seqlen_k) return {0, -1};
  const bool is_shared = key < pages.prefix_len;
  const int row = is_shared ? key : key - pages.prefix_len;
  const uint32_t index =
      __umulhi(2 * static_cast<uint32_t>(row), pages.division.multiplier) >> pages.division.shift;
  const int32_t* entry =
      is_shared ? pages.prefix_pages + index : entries + index * pages.stride_entry;
  return {*entry, row - static_cast<int>(index) * pages.page_size};
}

// Entries are clamped, since nobody can check them without a synchronisation.
__device__ inline int clamped_page(const PageParams& pages, const PagePlace& place) {
  return min(max(place.entry, 0), pages.num_pages - 1);
}
// num_pages for a key that is not there: TMA reads zeros.
__device__ inline int page_of(const PageParams& pages, const PagePlace& place) {
  return place.row < 0 ? pages.num_pages : clamped_page(pages, place);
}

}  // namespace fa4
