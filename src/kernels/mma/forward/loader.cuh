// The loader warps: which tiles the CTA takes, Q, and blocks of K and V with the descales of their
// keys. TMA brings blocks, or boxes out of pages, a lane each; where pages have any size, threads
// copy rows.
#pragma once

#include "kernels/mma/forward/context.cuh"
#include "kernels/output/rows.cuh"
#include "kernels/pages/copy_rows.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tma.cuh"

namespace fa4::mma {

template <FwdTraits T>
class Loader {
 public:
  __device__ Loader(const FwdContext<T>& context, int warp)
      : c(context),
        warp(warp),
        lane(static_cast<int>(threadIdx.x % 32)),
        copier{context.params.pages, warp, lane},
        lanes_log2(kBoxes ? log2_of_own_boxes(context.params.pages.box_rows) : 5) {
    if constexpr (kBoxes) {
      const bool counts = box_row() < kTileN && lane < 1 << lanes_log2;
      rows_of_boxes = __popc(__ballot_sync(0xffffffffu, counts)) * c.params.pages.box_rows;
    }
  }

  __device__ void run() {
    release_second_launch(c.params.schedule);
    Scheduler<T> scheduler(c.params, c.ranks(), warp, kRanked);
#pragma unroll 1
    for (;;) {
      const WorkTile work = scheduler.next();
      if (work.batch < 0) break;
      tile = {work, blocks_of_tile<tile_m(T), kTileN, T.parts>(c.params, work)};
      head = work.head / c.params.heads.tile_heads_per_kv;
      wait_for_inputs(c.params.schedule);
      if (warp == 0) {
        hand_out();
        load_q();
      }
      if constexpr (T.pages != Pages::kNone) begin_places();
#pragma unroll 1
      for (int n = first_block(); n >= tile.blocks.n_block_min; n -= kStep) fill(n);
    }
    if (warp == 0) {
      tile.work.batch = -1;
      hand_out();
    }
    // A CTA without a tile has not waited yet for the launch before it; the second of two launches
    // must end after the first.
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();  // what is left takes no more loads
  }

 private:
  static constexpr bool kBoxes = T.pages == Pages::kBoxes;
  static constexpr int kRing = ring_stages(T);
  static constexpr int kSharers = block_loaders(T);
  static constexpr bool kOwnTurn = turns_have_loaders(T);
  static constexpr int kStep = kOwnTurn ? T.turns : 1;  // from one block of a warp to its next
  static constexpr bool kEndsInside = true;  // head_dim is a multiple of 8 bytes, not of 16
  using Copier = PageRowCopier<kTileN, kSharers, slab_columns(pairs(T.head_dim)),
                               addresses_ahead(T), kEndsInside>;
  static constexpr int kPlaces = kBoxes ? 1 : Copier::kPlaces;  // of a lane

  // Which turn's blocks this warp loads, or all, and which part of each.
  __device__ int turn_of(int n) const { return (kOwnTurn ? warp : n) % T.turns; }
  __device__ int share() const { return kOwnTurn ? warp / T.turns : warp; }

  __device__ int first_block() const {
    const int n = tile.blocks.n_block_max - 1;
    return n % T.turns == turn_of(n) ? n : n - 1;
  }

  // Boxes have the same rows, which divide the block's. The block's loaders take them in turn;
  // where there are fewer, some have none.
  __device__ static int log2_of_own_boxes(int box_rows) {
    int log2 = 0;
    while (box_rows * kSharers << log2 < kTileN) ++log2;
    return log2;
  }
  __device__ int box_of(int lane_of_block) const { return share() + lane_of_block * kSharers; }
  // The first row in the block of this lane's box.
  __device__ int box_row() const {
    return box_of(lane & ((1 << lanes_log2) - 1)) * c.params.pages.box_rows;
  }

  __device__ void hand_out() {
    const Pipeline tiles = c.pipeline(kTileFull);
    tiles.producer_acquire(slot);
    if (ptx::elect_sync()) {
      c.tile(slot.stage()) = tile;
      ptx::mbarrier_arrive(tiles.full_barrier(slot.stage()));
    }
    __syncwarp();
    slot.advance();
  }

  __device__ void load_q() {
    const Pipeline ring = c.pipeline(kQFull);
    ring.producer_acquire(q);
    if (ptx::elect_sync()) {
      const FwdParams& p = c.params;
      const ptx::SmemAddr barrier = ring.full_barrier(q.stage());
      const ptx::SmemAddr to = c.smem_address(c.kSmem.q + q.stage() * q_bytes(T));
      const int row = packed_row_of(tile.work, tile_m(T), 0);
      ptx::mbarrier_arrive_expect_tx(barrier, q_bytes(T));
#pragma unroll
      for (int slab = 0; slab < num_slabs(T.head_dim); ++slab) {
        ptx::cp_async_bulk_tensor_5d_load(to + slab * tile_m(T) * kQRowBytes, &p.maps.q, barrier,
                                          slab * kQSlabColumns, head_of_group(p.heads, row),
                                          tile.work.head,
                                          tile.work.offset_q + (row >> p.heads.group_log2),
                                          batch_coordinate(p.sequences.cu_seqlens_q, tile.work));
      }
    }
    __syncwarp();
    q.advance();
  }

  // A block of K and V, and the descales of its keys.
  __device__ void fill(int n) {
    const int turn = turn_of(n);
    PipelineState<kRing> state{kOwnTurn || turn == 0 ? filled[0] : filled[1]};
    if constexpr (T.pages != Pages::kNone) take_places(n);
    const Pipeline ring = c.ring(turn);
    const int stage = turn * kRing + state.stage();
    const ptx::SmemAddr barrier = ring.full_barrier(state.stage());
    const ptx::SmemAddr k = c.smem_address(c.kSmem.k + stage * k_stage_bytes(T));
    const ptx::SmemAddr v = c.smem_address(c.kSmem.v + stage * v_stage_bytes(T));
    const int page = kBoxes ? page_of(c.params.pages, box) : 0;
    ring.producer_acquire(state);
    if constexpr (T.pages != Pages::kNone) find_next_places(n);
    if constexpr (T.pages == Pages::kRows) {
      const PageParams& pages = c.params.pages;
      const int count = tile.work.seqlen_k - n * kTileN;
      copier.template copy<pairs(T.head_dim)>(
          pages.k, copier.find(pages.k, first_of_head(pages.k, head), batch.places), count, k);
      copier.template copy<pairs(T.head_dim_v)>(
          pages.v, copier.find(pages.v, first_of_head(pages.v, head), batch.places), count, v);
    } else if constexpr (kBoxes) {
      load_boxes(k, v, barrier, page);
    } else {
      if (ptx::elect_sync()) {
        ptx::mbarrier_arrive_expect_tx(barrier, k_stage_bytes(T) + v_stage_bytes(T));
        load_block<T.head_dim>(c.params.maps.k, k, barrier, n);
        load_block<T.head_dim_v>(c.params.maps.v, v, barrier, n);
      }
      __syncwarp();
    }
    copy_descales(n, stage);
    ptx::cp_async_mbarrier_arrive_noinc(barrier);
    if (kOwnTurn || turn == 0) {
      ++filled[0];
    } else {
      ++filled[1];
    }
  }

  template <int kHeadDim>
  __device__ void load_block(const TensorMap& map, ptx::SmemAddr to, ptx::SmemAddr barrier,
                             int n) const {
    constexpr int kColumns = pairs(kHeadDim), kSlab = slab_columns(kColumns);
#pragma unroll
    for (int slab = 0; slab < num_slabs(kColumns); ++slab) {
      ptx::cp_async_bulk_tensor_4d_load(
          to + slab * kTileN * slab_bytes(kHeadDim), &map, barrier, slab * kSlab, head,
          tile.work.offset_k + n * kTileN,
          batch_coordinate(c.params.sequences.cu_seqlens_k, tile.work));
    }
  }

  // The first lanes load boxes of K, as many behind them the same boxes of V.
  __device__ void load_boxes(ptx::SmemAddr k, ptx::SmemAddr v, ptx::SmemAddr barrier,
                             int page) const {
    if (ptx::elect_sync()) {
      ptx::mbarrier_arrive_expect_tx(barrier, rows_of_boxes * (T.head_dim + T.head_dim_v));
    }
    __syncwarp();
    const int first = box_row(), row = max(box.row, 0);
    if (first < kTileN && lane >> lanes_log2 == 0) {
      load_box<T.head_dim>(c.params.maps.k, k, barrier, first, page, row);
    } else if (first < kTileN && lane >> lanes_log2 == 1) {
      load_box<T.head_dim_v>(c.params.maps.v, v, barrier, first, page, row);
    }
    __syncwarp();
  }
  template <int kHeadDim>
  __device__ void load_box(const TensorMap& map, ptx::SmemAddr to, ptx::SmemAddr barrier, int first,
                           int page, int row) const {
    constexpr int kColumns = pairs(kHeadDim), kSlab = slab_columns(kColumns);
#pragma unroll
    for (int slab = 0; slab < num_slabs(kColumns); ++slab) {
      ptx::cp_async_bulk_tensor_4d_load(to + (slab * kTileN + first) * slab_bytes(kHeadDim), &map,
                                        barrier, slab * kSlab, head, row, page);
    }
  }

  // Entries of the table that a warp reads at once, long before it needs them: of as many blocks as
  // it has lanes for. A lane of boxes finds one box of one of them.
  struct Batch {
    PagePlace places[kPlaces];
  };
  __device__ int blocks_of_batch() const { return 32 >> lanes_log2; }

  __device__ Batch load_batch(int first) const {
    const int n = kBoxes ? first - kStep * (lane >> lanes_log2) : first;
    const int32_t* entries = page_entries(c.params.pages, tile.work.batch, head);
    Batch read;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int row = kBoxes ? box_row() : copier.row_of(i);
      read.places[i] = {0, -1};
      if (n >= tile.blocks.n_block_min && row < kTileN) {
        read.places[i] = place_of(entries, n * kTileN + row);
      }
    }
    return read;
  }

  // The place of key `key`; row -1 where the sequence has no such key.
  __device__ PagePlace place_of(const int32_t* entries, int key) const {
    if (key >= tile.work.seqlen_k) return {0, -1};
    if (kBoxes || c.params.pages.simple_log2 < 0) return page_place(c.params.pages, entries, key);
    return simple_page_place(c.params.pages, entries, key);
  }

  __device__ void begin_places() {
    top = first_block() + kStep * blocks_of_batch();
    next_batch = load_batch(first_block());
  }

  // Takes the places of block n out of the batch. The warp calls it for its blocks in the order in
  // which it loads them.
  __device__ void take_places(int n) {
    if (top - n == kStep * blocks_of_batch()) {
      top = n;
      batch = next_batch;
    }
    if constexpr (kBoxes) {
      const int from = ((top - n) / kStep << lanes_log2) + (lane & ((1 << lanes_log2) - 1));
      box = {__shfl_sync(0xffffffffu, batch.places[0].entry, from & 31),
             __shfl_sync(0xffffffffu, batch.places[0].row, from & 31)};
    }
  }
  // Behind the wait for a stage: what is read of the table comes while block n is loaded.
  __device__ void find_next_places(int n) {
    if (n == top) next_batch = load_batch(top - kStep * blocks_of_batch());
  }

  __device__ void copy_descales(int n, int stage) const {
    const DescaleParams& of = c.params.descales;
    const ptx::SmemAddr to = ptx::smem_addr(c.descales_of_keys(stage));
    if (of.of_pages == 0) {
      const int block = (n * kTileN) >> of.shift;
      if (share() == 0 && lane == 0) copy_descale(of.k, block, to, true);
      if (share() == 0 && lane == 1) copy_descale(of.v, block, to + kDescaleBytes, true);
      return;
    }
    // Those of this warp's rows, of which a box has eight or more side by side.
    if constexpr (T.pages == Pages::kRows) {
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) copy_descales_of(copier.row_of(i), batch.places[i], to);
    } else if constexpr (kBoxes) {
      const int groups_log2 = 28 - __clz(c.params.pages.box_rows), own = lane >> groups_log2;
      const PagePlace place{__shfl_sync(0xffffffffu, box.entry, own),
                            __shfl_sync(0xffffffffu, box.row, own)};
      const int group = (box_of(own) << groups_log2) + (lane & ((1 << groups_log2) - 1));
      const bool is_own = own < 1 << lanes_log2 && group < kTileN / 8;
      if (is_own) copy_descales_of(group, place, to);
    }
  }
  __device__ void copy_descales_of(int index, const PagePlace& place, ptx::SmemAddr to) const {
    const int page = page_of(c.params.pages, place);
    const bool is_there = place.row >= 0;
    copy_descale(c.params.descales.k, page, to + 4 * index, is_there);
    copy_descale(c.params.descales.v, page, to + kDescaleBytes + 4 * index, is_there);
  }
  // 0 for a key that is not there.
  __device__ void copy_descale(const DescaleRows& of, int at, ptx::SmemAddr to,
                               bool is_there) const {
    if (of.data == nullptr) return;
    const float* from =
        of.data + tile.work.batch * of.stride_batch + at * of.stride_block + head * of.stride_head;
    ptx::cp_async_ca_4(to, from, is_there ? 4 : 0);
  }

  const FwdContext<T>& c;
  const int warp;
  const int lane;
  const Copier copier;
  const int lanes_log2;   // log2 of how many lanes load this warp's boxes of a block
  int rows_of_boxes = 0;  // rows of a block that this warp's boxes cover
  QTile tile{};
  int head = 0;
  PipelineState<kTileSlots> slot;
  PipelineState<T.q_stages> q;
  uint32_t filled[2] = {};  // stages of each turn's ring, or of the own turn's, passed
  PagePlace box;            // this lane's, of the block
  // Places of the blocks from `top` down, and of those behind them.
  Batch batch, next_batch;
  int top = 0;
};

}  // namespace fa4::mma
