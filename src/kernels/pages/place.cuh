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

// The place of a key that is there; `entries` is its sequence's row of the table.
__device__ inline PagePlace page_place(const PageParams& pages, const int32_t* entries, int key) {
  const bool is_shared = key < pages.prefix_len;
  const int row = is_shared ? key : key - pages.prefix_len;
  const uint32_t index =
      __umulhi(2 * static_cast<uint32_t>(row), pages.division.multiplier) >> pages.division.shift;
  const int32_t* entry =
      is_shared ? pages.prefix_pages + index : entries + index * pages.stride_entry;
  return {*entry, row - static_cast<int>(index) * pages.page_size};
}
// The same for any key of a sequence with `seqlen_k` keys in use. Entries past them are not read.
__device__ inline PagePlace page_place(const PageParams& pages, const int32_t* entries,
                                       int seqlen_k, int key) {
  if (key >= seqlen_k) return {0, -1};
  return page_place(pages, entries, key);
}

// Entries are clamped, since nobody can check them without a synchronisation.
__device__ inline int clamped_page(const PageParams& pages, const PagePlace& place) {
  return min(max(place.entry, 0), pages.num_pages - 1);
}

// A head's row 0 of page 0.
__device__ inline const char* first_of_head(const PageRows& rows, int head) {
  return static_cast<const char*>(rows.data) + head * rows.stride_head * kElementBytes;
}
// A head's row anywhere.
__device__ inline int64_t address_of(const PageParams& pages, const PageRows& rows,
                                     const char* first_of_head, const PagePlace& place) {
  const auto page = static_cast<uint32_t>(clamped_page(pages, place));
  const int64_t offset =
      page * rows.stride_page + static_cast<uint32_t>(place.row) * rows.stride_row;
  return reinterpret_cast<int64_t>(first_of_head + offset * kElementBytes);
}

// The same of simple pages (PageParams::simple_log2), by fewer instructions.
__device__ inline PagePlace simple_page_place(const PageParams& pages, const int32_t* entries,
                                              int key) {
  return {entries[key >> pages.simple_log2], key & ((1 << pages.simple_log2) - 1)};
}
__device__ inline int64_t simple_address_of(const PageParams& pages, const PageRows& rows,
                                            const char* first_of_head, const PagePlace& place) {
  const auto page = static_cast<uint32_t>(clamped_page(pages, place));
  const uint64_t row = (page << pages.simple_log2) + static_cast<uint32_t>(place.row);
  return reinterpret_cast<int64_t>(first_of_head +
                                   row * static_cast<uint32_t>(rows.stride_row * kElementBytes));
}

// That of the matrix out of which TMA gathers (Pages::kGathers), which is a row of the head's; one
// behind all for a key that is not there: TMA reads zeros.
__device__ inline int gathered_row_of(const PageParams& pages, const PageRows& rows, int head,
                                      const PagePlace& place) {
  if (place.row < 0) return 0x7fffffff;
  return clamped_page(pages, place) * rows.page_rows + place.row * rows.row_rows +
         head * rows.head_rows;
}

// num_pages for a key that is not there: TMA reads zeros.
__device__ inline int page_of(const PageParams& pages, const PagePlace& place) {
  return place.row < 0 ? pages.num_pages : clamped_page(pages, place);
}

}  // namespace fa4
