// Where the keys of a block lie that are in pages.
#pragma once

#include "kernels/base/integers.h"
#include "kernels/forward/params.h"

namespace fa4 {

// A key, or the first one of a box.
struct PagePlace {
  int page;  // num_pages for a key that is not there: TMA reads zeros
  int row;
};

// Of a sequence with so many keys in use. Entries of the table past them are not read, those before
// are clamped, since nobody can check them without a synchronisation.
__device__ inline PagePlace page_place(const PageParams& pages, int batch, int seqlen_k, int key) {
  if (key >= seqlen_k) return {pages.num_pages, 0};
  const int index =
      static_cast<int>(static_cast<uint32_t>(key) / static_cast<uint32_t>(pages.page_size));
  const int page = pages.table[int64_t{batch} * pages.pages_per_seq + index];
  const int last = pages.num_pages - 1;
  return {page < 0 ? 0 : page > last ? last : page, key - index * pages.page_size};
}

}  // namespace fa4
