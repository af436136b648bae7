// The loader warps where K and V lie in pages: each loads a third of each block. TMA takes boxes
// out of pages, a lane each (Pages::kBoxes a box for each slab, Pages::kGroups one for all), or the
// threads copy rows, 16 bytes each (Pages::kRows).
#pragma once

#include "kernels/pages/copy_rows.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/forward/tile_reader.cuh"
#include "kernels/tile/clear_rows.cuh"

namespace fa4::sm90 {

// One of the three warps. Of boxes, every third is its own.
template <FwdTraits T>
class PageLoader {
 public:
  __device__ PageLoader(const FwdContext<T>& context, int warp_of_three)
      : c(context),
        tiles(context),
        copier{context.params.pages, warp_of_three, static_cast<int>(threadIdx.x % 32)},
        groups_of_k(groups_of_page(context.params.pages.k)),
        groups_of_v(groups_of_page(context.params.pages.v)),
        lanes_log2(kBoxes ? boxes_log2(context.params.pages.box_rows) : 5) {}

  // The order of KvLoader.
  __device__ void run() {
    QTile tile{.work = {.batch = -1}}, next{};
    int head = 0, next_head = 0;
    do {
      int n = tile.blocks.n_block_max - 1;
#pragma unroll 1
      do {
        const bool last = n <= tile.blocks.n_block_min;
        if (tile.is_valid()) tiles.visit(n);
        if (last) {
          next = tiles.fetch();
          next_head = next.work.head / c.params.heads.tile_heads_per_kv;
        }
        const bool has_next = last && next.work.batch >= 0;
        move_to_v();
        if (last) {
          if constexpr (kAhead) begin_batches(next, next_head);
          find_keys(next, next_head, next.blocks.n_block_max - 1);
        } else {
          find_keys(tile, head, n - 1);
        }
        if (!last || has_next) fill_k(last ? next_head : head, !last || next.sees_keys());
        if (tile.work.batch >= 0) {
          fill_v(head, tile.sees_keys(), tile.work.seqlen_k - n * T.tile_n);
        }
      } while (--n >= tile.blocks.n_block_min);
      tile = next;
      head = next_head;
    } while (tile.work.batch >= 0);
  }

 private:
  static constexpr bool kBoxes = T.pages != Pages::kRows;
  // Whether entries of the page table are read batches of blocks ahead: where loads are the time.
  static constexpr bool kAhead = reads_keys_once(T) || !kBoxes;
  using Copier = PageRowCopier<T.tile_n, kLoaderWarps>;
  static constexpr int kPlaces = kBoxes ? 1 : Copier::kPlaces;  // of a lane

  // Lanes for the boxes that one of the three warps has of a block.
  __device__ static int boxes_log2(int box_rows) {
    int log2 = 0;
    while (box_rows * kLoaderWarps << log2 < T.tile_n) ++log2;
    return log2;
  }

  // How far pages lie apart, in groups of rows.
  __device__ static int groups_of_page(const PageRows& of) {
    if constexpr (T.pages != Pages::kGroups) return 0;
    return static_cast<int>(of.stride_page / (kGroupRows * of.stride_row));
  }

  // V is a block behind K.
  __device__ void move_to_v() {
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) places_of_v[i] = places_of_k[i];
  }

  // The first row in the block of a lane's box, or of its i-th row.
  __device__ int row_of(int i) const {
    if constexpr (!kBoxes) return copier.row_of(i);
    return (copier.warp + copier.lane * kLoaderWarps) * c.params.pages.box_rows;
  }

  // Entries of the table that a warp reads at once, long before it needs them: of as many blocks as
  // it has lanes for. A lane of boxes finds one box of one of them.
  struct Batch {
    PagePlace places[kPlaces];
  };
  __device__ int blocks_of_batch() const { return 32 >> lanes_log2; }

  __device__ Batch load_batch(const QTile& tile, int head, int top) const {
    const int n_block = kBoxes ? top - (copier.lane >> lanes_log2) : top;
    const int box = copier.lane & ((1 << lanes_log2) - 1);
    Batch batch;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int row =
          kBoxes ? (copier.warp + box * kLoaderWarps) * c.params.pages.box_rows : copier.row_of(i);
      batch.places[i] = {0, -1};
      if (tile.sees_keys() && n_block >= tile.blocks.n_block_min && row < T.tile_n) {
        batch.places[i] = page_place(c.params.pages, tile.work.batch, head, tile.work.seqlen_k,
                                     n_block * T.tile_n + row);
      }
    }
    return batch;
  }

  __device__ void begin_batches(const QTile& tile, int head) {
    top = tile.blocks.n_block_max - 1;
    batch = load_batch(tile, head, top);
    next_batch = load_batch(tile, head, top - blocks_of_batch());
  }

  // Of blocks one after the other.
  __device__ void take_from_batch(const QTile& tile, int head, int n_block) {
    if (top - n_block == blocks_of_batch()) {
      top = n_block;
      batch = next_batch;
      next_batch = load_batch(tile, head, top - blocks_of_batch());
    }
    const int from = kBoxes ? ((top - n_block) << lanes_log2) + copier.lane : copier.lane;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      places_of_k[i] = batch.places[i];
      if constexpr (kBoxes) {
        places_of_k[i] = {__shfl_sync(0xffffffffu, batch.places[i].entry, from & 31),
                          __shfl_sync(0xffffffffu, batch.places[i].row, from & 31)};
      }
    }
  }

  // Reads the page table before anybody waits for a stage.
  __device__ void find_keys(const QTile& tile, int head, int n_block) {
    if constexpr (kAhead) return take_from_batch(tile, head, n_block);
    if (!tile.sees_keys()) return;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      places_of_k[i] = page_place(c.params.pages, tile.work.batch, head, tile.work.seqlen_k,
                                  n_block * T.tile_n + row_of(i));
    }
  }

  __device__ void fill_k(int head, bool has_keys) {
    const Pipeline ring = c.pipeline(kKFull);
    ring.producer_acquire(k);
    const ptx::SmemAddr barrier = ring.full_barrier(k.stage());
    if (!has_keys) {
      arrive(barrier);
    } else {
      const int to = c.kSmem.k + k.stage() * k_stage_bytes(T);
      if constexpr (kBoxes) {
        load<T.head_dim>(c.params.maps.k, c.smem_address(to), barrier, head, places_of_k[0],
                         groups_of_k);
      } else {
        copy<T.head_dim>(c.params.pages.k, c.smem_address(to), barrier, head, places_of_k);
      }
    }
    k.advance();
  }

  // Rows past the last key are zeros: of boxes without keys by TMA, of rows that threads copy by
  // the copies; those in the box of the last key one warp clears.
  __device__ void fill_v(int head, bool has_keys, int valid) {
    const Pipeline ring = c.pipeline(kVFull);
    ring.producer_acquire(v);
    const ptx::SmemAddr barrier = ring.full_barrier(v.stage());
    if (!has_keys) {
      arrive(barrier);
    } else {
      const int to = c.kSmem.v + v.stage() * v_stage_bytes(T);
      if constexpr (kBoxes) {
        const bool clear = !reads_keys_once(T) && valid < T.tile_n;
        load<T.head_dim_v>(c.params.maps.v, c.smem_address(to), clear ? c.barrier(kVRaw) : barrier,
                           head, places_of_v[0], groups_of_v);
        if (clear) {
          wait(c.barrier(kVRaw), v_raw.phase());
          v_raw.advance();
          if (copier.warp == 0) {
            clear_rows<T.tile_n, T.head_dim_v, slab_columns(T.head_dim_v), 32,
                       kv_layout(T, T.head_dim_v)>(c.smem + to, valid);
          }
          arrive(barrier);
        }
      } else {
        copy<T.head_dim_v>(c.params.pages.v, c.smem_address(to), barrier, head, places_of_v);
      }
    }
    v.advance();
  }

  __device__ void arrive(ptx::SmemAddr barrier) const {
    if (!kBoxes || ptx::elect_sync()) ptx::mbarrier_arrive(barrier);
    __syncwarp();
  }

  template <int kHeadDim>
  __device__ void load(const TensorMap& map, ptx::SmemAddr stage, ptx::SmemAddr barrier, int head,
                       const PagePlace& box, int groups_of_page) const {
    constexpr TileLayout kLayout = kv_layout(T, kHeadDim);
    const int rows = c.params.pages.box_rows, row = row_of(0);
    const bool is_own = row < T.tile_n;
    const int boxes = __popc(__ballot_sync(0xffffffffu, is_own));
    if (ptx::elect_sync()) {
      ptx::mbarrier_arrive_expect_tx(barrier, boxes * rows * kHeadDim * kElementBytes);
    }
    __syncwarp();
    if (is_own) {
      const int page = page_of(c.params.pages, box), row_of_page = max(box.row, 0);
      const ptx::SmemAddr to = stage + row / kGroupRows * kLayout.group_bytes;
      if constexpr (T.pages == Pages::kGroups) {
        ptx::cp_async_bulk_tensor_5d_load(to, &map, barrier, 0, 0, 0, head,
                                          page * groups_of_page + row_of_page / kGroupRows,
                                          key_policy<T>());
      } else {
#pragma unroll
        for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
          ptx::cp_async_bulk_tensor_4d_load(to + slab * kLayout.slab_bytes, &map, barrier,
                                            slab * slab_columns(kHeadDim), head, row_of_page, page,
                                            key_policy<T>());
        }
      }
    }
    __syncwarp();
  }

  // Each lane's copies arrive by themselves, and the warp goes on. Who reads them has the fence.
  template <int kHeadDim>
  __device__ void copy(const PageRows& from, ptx::SmemAddr stage, ptx::SmemAddr barrier, int head,
                       const PagePlace (&places)[kPlaces]) const {
    copier.template copy<kHeadDim>(from, head, places, stage);
    ptx::cp_async_mbarrier_arrive_noinc(barrier);
  }

  const FwdContext<T>& c;
  TileReader<T> tiles;
  const Copier copier;
  const int groups_of_k, groups_of_v;
  PipelineState<T.kv_stages> k, v;
  PipelineState<1> v_raw;
  PagePlace places_of_k[kPlaces], places_of_v[kPlaces];
  // kAhead: places of the blocks from `top` down, and of those behind them.
  const int lanes_log2;  // of a block
  Batch batch, next_batch;
  int top = 0;
};

}  // namespace fa4::sm90
