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
        copier{context.params.pages, warp_of_three, static_cast<int>(threadIdx.x % 32)},
        is_simple(pages().simple_log2 >= 0) {}

  __device__ void run() { load_tiles(tiles, *this); }

  // The steps of load_tiles (tile_reader.cuh).
  __device__ void begin(const QTile& tile) {
    keys = PagedKeys(c.params, tile);
    first_k = first_of_head(pages().k, keys.head);
    first_v = first_of_head(pages().v, keys.head);
    n_ahead = tile.blocks.n_block_max - 1;
    find_ahead();
  }
  __device__ void pass_to_v() { rows_of_v = next_rows_of_v; }
  __device__ void load_k() {
    const Rows rows = is_simple ? copier.template find<true>(pages().k, first_k, ahead)
                                : copier.find(pages().k, first_k, ahead);
    fill<T.head_dim>(kKFull, c.kSmem.k + k.stage() * k_stage_bytes(T), k, pages().k, rows,
                     keys.count - n_ahead * T.tile_n, keys.exist);
    next_rows_of_v =
        is_simple ? Copier::moved(rows, first_v - first_k) : copier.find(pages().v, first_v, ahead);
    --n_ahead;
    find_ahead();
  }
  // Rows behind the last key are zeros by the copies.
  __device__ void load_v(const QTile& tile, int n_block) {
    fill<T.head_dim_v>(kVFull, c.kSmem.v + v.stage() * v_stage_bytes(T), v, pages().v, rows_of_v,
                       tile.work.seqlen_k - n_block * T.tile_n, tile.sees_keys());
  }

 private:
  using Copier = PageRowCopier<T.tile_n, kLoaderWarps, slab_columns(T.head_dim), 4>;
  using Rows = typename Copier::Rows;
  static constexpr int kPlaces = Copier::kPlaces;  // of a lane

  __device__ const PageParams& pages() const { return c.params.pages; }

  // Reads the page table for block n_ahead, the one of K behind that which was loaded last; nobody
  // waits for it until then. Places behind the block or the last key stand for the last one.
  __device__ void find_ahead() {
    if (!keys.visits(n_ahead)) return;
    const int first = n_ahead * T.tile_n, last = min(first + T.tile_n, keys.count) - 1;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int key = min(first + copier.row_of(i), last);
      ahead[i] = is_simple ? simple_page_place(pages(), keys.entries, key)
                           : page_place(pages(), keys.entries, key);
    }
  }

  // Each lane's copies arrive by themselves, and the warp goes on. Who reads them has the fence.
  template <int kHeadDim>
  __device__ void fill(BarrierKind full, int stage, PipelineState<T.kv_stages>& state,
                       const PageRows& from, const Rows& rows, int count, bool has_keys) {
    const Pipeline ring = c.pipeline(full);
    const ptx::SmemAddr barrier = ring.full_barrier(state.stage());
    ring.producer_acquire(state);
    if (has_keys) {
      copier.template copy<kHeadDim>(from, rows, count, c.smem_address(stage));
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
  const bool is_simple;

  PagedKeys keys;
  const char *first_k = nullptr, *first_v = nullptr;  // of the head
  int n_ahead = 0;
  PagePlace ahead[kPlaces] = {};
  Rows next_rows_of_v = {}, rows_of_v = {};

  PipelineState<T.kv_stages> k, v;
};

}  // namespace fa4::sm90
