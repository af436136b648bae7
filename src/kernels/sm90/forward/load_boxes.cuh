// The loader warps where K and V lie in pages out of which TMA takes boxes, a lane each: one for
// each slab (Pages::kBoxes), or one for all slabs (Pages::kGroups).
#pragma once

#include "kernels/sm90/forward/paged_keys.cuh"
#include "kernels/sm90/forward/tile_reader.cuh"
#include "kernels/tile/clear_rows.cuh"

namespace fa4::sm90 {

// One of the three warps. Every third box of a block is its own. Where they lie it finds for
// several blocks at once, as many as it has lanes for, while it waits for none of them: between a
// stage that is free and the loads into it nothing is left to be computed.
template <FwdTraits T>
class BoxLoader {
 public:
  __device__ BoxLoader(const FwdContext<T>& context, int warp_of_three)
      : c(context),
        tiles(context),
        lanes_log2(boxes_log2(context.params.pages.box_rows)),
        block_of_lane(lane() >> lanes_log2),
        row(box_of_lane(warp_of_three) * context.params.pages.box_rows),
        clears(warp_of_three == 0) {
    const bool counts = has_box() && block_of_lane == 0;
    rows_of_warp = __popc(__ballot_sync(0xffffffffu, counts)) * context.params.pages.box_rows;
  }

  __device__ void run() { load_tiles(tiles, *this); }

  // The steps of load_tiles (tile_reader.cuh).
  __device__ void begin(const QTile& tile) {
    keys = PagedKeys(c.params, tile);
    n_ahead = tile.blocks.n_block_max - 1;
    find_ahead();
    of_batch = blocks_of_batch();
  }
  __device__ void pass_to_v() { v = {keys.head, is_own, v_box(boxes)}; }
  __device__ void load_k() {
    if (of_batch == blocks_of_batch()) {
      boxes = boxes_at(ahead);
      of_batch = 0;
    }
    is_own = has_box() && block_of_lane == of_batch;
    const Pipeline ring = c.pipeline(kKFull);
    const ptx::SmemAddr barrier = ring.full_barrier(k_state.stage());
    const int stage = c.kSmem.k + k_state.stage() * k_stage_bytes(T);
    ring.producer_acquire(k_state);
    if (keys.exist) {
      load<T.head_dim>(c.params.maps.k, stage, barrier, keys.head, is_own, boxes.k);
    } else {
      arrive(barrier);
    }
    k_state.advance();
    if (of_batch++ == 0) find_ahead();
  }
  // Rows behind the last key are zeros: those of boxes without keys by TMA, those in the box of the
  // last key by one warp.
  __device__ void load_v(const QTile& tile, int n_block) {
    const int valid = tile.work.seqlen_k - n_block * T.tile_n;
    const bool clear = !reads_keys_once(T) && valid < T.tile_n && tile.sees_keys();
    const Pipeline ring = c.pipeline(kVFull);
    const ptx::SmemAddr barrier = ring.full_barrier(v_state.stage());
    const int stage = c.kSmem.v + v_state.stage() * v_stage_bytes(T);
    ring.producer_acquire(v_state);
    if (tile.sees_keys()) {
      load<T.head_dim_v>(c.params.maps.v, stage, clear ? c.barrier(kVRaw) : barrier, v.head,
                         v.is_own, v.box);
    } else {
      arrive(barrier);
    }
    if (clear) {
      wait(c.barrier(kVRaw), v_raw.phase());
      v_raw.advance();
      if (clears) {
        clear_rows<T.tile_n, T.head_dim_v, slab_columns(T.head_dim_v), 32,
                   kv_layout(T, T.head_dim_v)>(c.smem + stage, valid);
      }
      arrive(barrier);
    }
    v_state.advance();
  }

 private:
  static constexpr bool kGroups = T.pages == Pages::kGroups;

  // TMA's last two coordinates: a row of a page and the page, or (Pages::kGroups) nothing and a
  // group of rows among those of all pages.
  struct Box {
    int row, page;
  };
  // Pages of K and of V may lie differently far apart.
  struct Boxes {
    Box k, v;
  };
  struct BoxOfV {
    int head;
    bool is_own;
    Box box;
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  // Lanes for the boxes that one of the three warps has of a block.
  __device__ static int boxes_log2(int box_rows) {
    int log2 = 0;
    while (box_rows * kLoaderWarps << log2 < T.tile_n) ++log2;
    return log2;
  }
  __device__ int box_of_lane(int warp) const {
    return warp + (lane() & ((1 << lanes_log2) - 1)) * kLoaderWarps;
  }
  __device__ bool has_box() const { return row < T.tile_n; }
  __device__ int blocks_of_batch() const { return 32 >> lanes_log2; }

  // Reads the page table for this lane's box of the next batch, for which nobody waits.
  __device__ void find_ahead() {
    ahead = keys.find<T.tile_n>(c.params.pages, n_ahead - block_of_lane, row);
    n_ahead -= blocks_of_batch();
  }
  __device__ Boxes boxes_at(const PagePlace& place) const {
    const int page = page_of(c.params.pages, place), row_of_page = max(place.row, 0);
    if constexpr (!kGroups) return {.k = {row_of_page, page}};
    const int group = row_of_page / kGroupRows;
    return {.k = {0, page * c.params.pages.k.groups_of_page + group},
            .v = {0, page * c.params.pages.v.groups_of_page + group}};
  }
  __device__ static Box v_box(const Boxes& of) { return kGroups ? of.v : of.k; }

  __device__ void arrive(ptx::SmemAddr barrier) const {
    if (ptx::elect_sync()) ptx::mbarrier_arrive(barrier);
    __syncwarp();
  }

  template <int kHeadDim>
  __device__ void load(const TensorMap& map, int stage, ptx::SmemAddr barrier, int head,
                       bool is_own_box, const Box& box) const {
    constexpr TileLayout kLayout = kv_layout(T, kHeadDim);
    if (ptx::elect_sync()) {
      ptx::mbarrier_arrive_expect_tx(barrier, rows_of_warp * kHeadDim * kElementBytes);
    }
    __syncwarp();
    if (is_own_box) {
      const ptx::SmemAddr to = c.smem_address(stage) + row / kGroupRows * kLayout.group_bytes;
      if constexpr (kGroups) {
        ptx::cp_async_bulk_tensor_5d_load(to, &map, barrier, 0, 0, 0, head, box.page,
                                          key_policy<T>());
      } else {
#pragma unroll
        for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
          ptx::cp_async_bulk_tensor_4d_load(to + slab * kLayout.slab_bytes, &map, barrier,
                                            slab * slab_columns(kHeadDim), head, box.row, box.page,
                                            key_policy<T>());
        }
      }
    }
    __syncwarp();
  }

  const FwdContext<T>& c;
  TileReader<T> tiles;
  const int lanes_log2;     // of a block
  const int block_of_lane;  // of a batch
  const int row;            // the first one of this lane's box, in its block
  const bool clears;
  int rows_of_warp;  // of a block

  PagedKeys keys;
  // This lane's boxes of a batch of blocks, which block of it is next, and whether this lane has a
  // box of the one before, whose K was loaded last.
  Boxes boxes{};
  int of_batch = 0;
  bool is_own = false;
  // The next batch: its first block, and what the page table says of it.
  int n_ahead = 0;
  PagePlace ahead{0, -1};
  BoxOfV v{};

  PipelineState<T.kv_stages> k_state, v_state;
  PipelineState<1> v_raw;
};

}  // namespace fa4::sm90
