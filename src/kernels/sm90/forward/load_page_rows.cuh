// The loader warps where K and V lie in pages out of which threads copy rows, 16 bytes each
// (Pages::kRows). Each warp has a third of each block.
#pragma once

#include "kernels/pages/copy_rows.cuh"
#include "kernels/sm90/forward/paged_keys.cuh"
#include "kernels/sm90/forward/tile_reader.cuh"

namespace fa4::sm90 {

template <FwdTraits T>
class PageRowLoader {
 public:
  __device__ PageRowLoader(const FwdContext<T>& context, int warp_of_three)
      : c(context),
        tiles(context),
        copier{context.params.pages, warp_of_three, static_cast<int>(threadIdx.x % 32)} {}

  __device__ void run() { load_tiles(tiles, *this); }

  // The steps of load_tiles (tile_reader.cuh).
  __device__ void begin(const QTile& tile) {
    keys = PagedKeys(c.params, tile);
    n_ahead = tile.blocks.n_block_max - 1;
    find_ahead();
  }
  __device__ void pass_to_v() {
    head_of_v = keys.head;
    move(places_of_v, places_of_k);
  }
  __device__ void load_k() {
    move(places_of_k, ahead);
    --n_ahead;
    find_ahead();
    fill<T.head_dim>(kKFull, c.kSmem.k + k.stage() * k_stage_bytes(T), k, c.params.pages.k,
                     keys.head, places_of_k, keys.exist);
  }
  // Rows behind the last key are zeros by the copies.
  __device__ void load_v(const QTile& tile, int /*n_block*/) {
    fill<T.head_dim_v>(kVFull, c.kSmem.v + v.stage() * v_stage_bytes(T), v, c.params.pages.v,
                       head_of_v, places_of_v, tile.sees_keys());
  }

 private:
  using Copier = PageRowCopier<T.tile_n, kLoaderWarps, slab_columns(T.head_dim), 4>;
  static constexpr int kPlaces = Copier::kPlaces;  // of a lane
  using Places = PagePlace[kPlaces];

  __device__ static void move(Places& to, const Places& from) {
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) to[i] = from[i];
  }

  // Reads the page table for block n_ahead, the one of K behind that which is loaded next; nobody
  // waits for it until then.
  __device__ void find_ahead() {
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      ahead[i] = keys.find<T.tile_n>(c.params.pages, n_ahead, copier.row_of(i));
    }
  }

  // Each lane's copies arrive by themselves, and the warp goes on. Who reads them has the fence.
  template <int kHeadDim>
  __device__ void fill(BarrierKind full, int stage, PipelineState<T.kv_stages>& state,
                       const PageRows& from, int head, const Places& places, bool has_keys) {
    const Pipeline ring = c.pipeline(full);
    const ptx::SmemAddr barrier = ring.full_barrier(state.stage());
    const typename Copier::Rows rows = copier.find(from, head, places);
    ring.producer_acquire(state);
    if (has_keys) {
      copier.template copy<kHeadDim>(from, rows, c.smem_address(stage));
      ptx::cp_async_mbarrier_arrive_noinc(barrier);
    } else {
      ptx::mbarrier_arrive(barrier);
      __syncwarp();
    }
    state.advance();
  }

  const FwdContext<T>& c;
  TileReader<T> tiles;
  const Copier copier;

  PagedKeys keys;
  int n_ahead = 0;
  int head_of_v = 0;
  Places places_of_k, places_of_v, ahead;

  PipelineState<T.kv_stages> k, v;
};

}  // namespace fa4::sm90
