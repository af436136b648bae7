// A tile's keys in pages, whose K is loaded.
#pragma once

#include "kernels/geometry/work_tile.cuh"
#include "kernels/pages/place.cuh"

namespace fa4::sm90 {

struct PagedKeys {
  int head = 0;
  const int32_t* entries = nullptr;  // of the page table
  int count = 0;                     // of the sequence
  int first_block = 0;
  bool exist = false;  // whether the tile sees any

  __device__ PagedKeys() = default;
  __device__ PagedKeys(const FwdParams& p, const QTile& tile)
      : head(tile.work.head / p.heads.tile_heads_per_kv),
        entries(page_entries(p.pages, tile.work.batch, head)),
        count(tile.work.seqlen_k),
        first_block(tile.blocks.n_block_min),
        exist(tile.sees_keys()) {}

  // Whether the tile visits this block: then its first key is there.
  __device__ bool visits(int n_block) const { return exist && n_block >= first_block; }

  // Row `row` of block n_block; nothing is read of the table where the tile does not visit it.
  template <int kTileN>
  __device__ PagePlace find(const PageParams& pages, int n_block, int row) const {
    if (!visits(n_block) || row >= kTileN) return {0, -1};
    return page_place(pages, entries, count, n_block * kTileN + row);
  }
};

}  // namespace fa4::sm90
