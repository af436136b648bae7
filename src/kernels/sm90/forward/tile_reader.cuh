// What the loaders of keys and values (load_kv, load_boxes, load_page_rows, load_bytes) have in
// common.
#pragma once

#include "kernels/geometry/sequence.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/forward/context.cuh"

namespace fa4::sm90 {

// What a warp that loads keys and values knows of tiles.
template <FwdTraits T>
class TileReader {
 public:
  __device__ explicit TileReader(const FwdContext<T>& context) : c(context) {}

  // The next tile; batch -1: there is none. Its keys may be loaded.
  __device__ QTile fetch() {
    const Pipeline tiles = c.pipeline(kTileFull);
    tiles.consumer_wait(slot);
    const QTile tile = c.tile(slot.stage());
    __syncwarp();
    if (threadIdx.x % 32 == 0) tiles.consumer_release(slot);
    slot.advance();
    const BlockRange& blocks = tile.blocks;
    last_unasked = min(blocks.n_block_max - 1, blocks.n_block_min + kBlocksAhead);
    wait_for_inputs(c.params.schedule);
    return tile;
  }

  // Whether fetch() would not wait: the same answer for all lanes.
  __device__ bool is_there() const {
    return __all_sync(0xffffffffu, c.pipeline(kTileFull).is_full(slot)) != 0;
  }

  // Called for each block `n` of the tile fetched last, from its last one to its first: asks for
  // the tile after it in time.
  __device__ void visit(int n) const {
    if (n == last_unasked && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(c.barrier(kTileWanted));
  }

 private:
  // So many blocks before a tile's end the next one is asked for: some 3000 clocks pass until it is
  // found, and its Q must come. Parts are dealt out, so that asking early takes none from a CTA.
  static constexpr int kBlocksAhead = T.parts ? 1 << 20 : 2;

  const FwdContext<T>& c;
  PipelineState<kTileSlots> slot;
  int last_unasked = 0;
};

// The order in which the rings are filled. K runs a block ahead of V, also from tile to tile: the
// consumers multiply a tile's last P by V together with the next tile's Q Kᵀ, if Q has more slots
// than there are warpgroups. The first round has no tile of its own. A loader's steps:
//   begin(tile)      the blocks of K are this tile's from here on
//   pass_to_v()      V's next block is the one whose K was loaded last
//   load_k()         K of the next block; of a tile without keys a stage with nothing in it
//   load_v(tile, n)  V of block n, likewise
template <FwdTraits T, class Loader>
__device__ inline void load_tiles(TileReader<T>& tiles, Loader& loader) {
  QTile tile{.work = {.batch = -1}}, next{};
  do {
    int n = tile.blocks.n_block_max - 1;
#pragma unroll 1
    do {
      const bool last = n <= tile.blocks.n_block_min;
      if (tile.is_valid()) tiles.visit(n);
      loader.pass_to_v();
      if (last) {
        next = tiles.fetch();
        if (next.is_valid()) loader.begin(next);
      }
      if (!last || next.is_valid()) loader.load_k();
      if (tile.is_valid()) loader.load_v(tile, n);
    } while (--n >= tile.blocks.n_block_min);
    tile = next;
  } while (tile.is_valid());
}

// Keys are to stay in the L2 cache for the head's other tiles, unless they are read only once.
template <FwdTraits T>
__device__ inline ptx::CachePolicy key_policy() {
  return reads_keys_once(T) ? ptx::createpolicy_evict_first() : ptx::createpolicy_evict_last();
}

}  // namespace fa4::sm90
