// The producer warpgroup where pages have any size (Pages::kRows): one warp hands out tiles and
// loads Q, three copy the rows of K and V, 16 bytes a thread.
#pragma once

#include "kernels/geometry/page_box.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/sm90/forward/producer.cuh"

namespace fa4::sm90 {

template <FwdTraits T>
__device__ inline void hand_out_tiles(const FwdContext<T>& c) {
  TileScheduler<T.tile_m> scheduler(c.params.sequences, c.params.heads, c.params.schedule);
  PipelineState<kTileSlots> slot;
  ProducerState<T> state;
#pragma unroll 1
  for (;;) {
    const LoadTile tile = next_tile(c, scheduler, slot);
    if (tile.work.batch < 0) break;
    produce_q(c, tile, state);
  }
  ptx::griddepcontrol_launch_dependents();
}

// One of the three warps. Eight rows of a block are one warp's, the next eight the next one's. A
// lane finds the place of every 32nd of its warp's rows and tells it to those that copy the row.
template <FwdTraits T>
class Gatherer {
 public:
  __device__ Gatherer(const FwdContext<T>& context, int warp_of_three)
      : c(context), warp(warp_of_three) {}

  // The order of producer().
  __device__ void run() {
    QTile tile{.work = {.batch = -1}}, next{};
    do {
      int n = tile.blocks.n_block_max - 1;
#pragma unroll 1
      do {
        const bool last = n <= tile.blocks.n_block_min;
        if (last) next = fetch_tile();
        const bool has_next = last && next.work.batch >= 0;
        move_to_v();
        if (last) {
          find_rows(next, next.blocks.n_block_max - 1);
        } else {
          find_rows(tile, n - 1);
        }
        if (!last || has_next) {
          fill<T.head_dim>(kKFull, k, c.kSmem.k, c.params.pages.k, rows_of_k,
                           last ? next.work.head : tile.work.head, !last || next.sees_keys());
        }
        if (tile.work.batch >= 0) {
          fill<T.head_dim_v>(kVFull, v, c.kSmem.v, c.params.pages.v, rows_of_v, tile.work.head,
                             tile.sees_keys());
        }
      } while (--n >= tile.blocks.n_block_min);
      tile = next;
    } while (tile.work.batch >= 0);
  }

 private:
  static constexpr int kGroup = 8;  // rows, in which the pattern of pieces repeats
  static constexpr int kGroups = T.tile_n / kGroup;
  static constexpr int kRowsOfWarp = (kGroups + kGatherWarps - 1) / kGatherWarps * kGroup;
  static constexpr int kRowsOfLane = (kRowsOfWarp + 31) / 32;

  __device__ QTile fetch_tile() {
    const Pipeline tiles = c.pipeline(kTileFull);
    tiles.consumer_wait(slot);
    const QTile t = c.tile(slot.stage());
    __syncwarp();
    if (lane == 0) tiles.consumer_release(slot);
    slot.advance();
    return t;
  }

  // V is a block behind K.
  __device__ void move_to_v() {
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) rows_of_v[i] = rows_of_k[i];
  }

  // Reads the page table before anybody waits for a stage.
  __device__ void find_rows(const QTile& tile, int n_block) {
    if (!tile.sees_keys()) return;
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int own = 32 * i + lane, group = warp + own / kGroup * kGatherWarps;
      rows_of_k[i] = page_place(c.params.pages, tile.work.batch, tile.work.seqlen_k,
                                n_block * T.tile_n + group * kGroup + own % kGroup);
    }
  }

  template <int kHeadDim, int kStages>
  __device__ void fill(int full_kind, PipelineState<kStages>& state, int ring, const PageRows& from,
                       const PagePlace (&rows)[kRowsOfLane], int tile_head, bool has_keys) {
    const Pipeline pipeline = c.pipeline(full_kind);
    pipeline.producer_acquire(state);
    const ptx::SmemAddr barrier = pipeline.full_barrier(state.stage());
    if (has_keys) {
      const int head = tile_head / c.params.heads.tile_heads_per_kv;
      copy<kHeadDim>(c.smem_address(ring + state.stage() * T.tile_n * kHeadDim * kElementBytes),
                     from, head, rows);
      ptx::cp_async_mbarrier_arrive_noinc(barrier);
    } else {
      ptx::mbarrier_arrive(barrier);
    }
    __syncwarp();
    state.advance();
  }

  template <int kHeadDim>
  __device__ void copy(ptx::SmemAddr stage, const PageRows& from, int head,
                       const PagePlace (&rows)[kRowsOfLane]) {
    constexpr int kSlab = slab_columns(kHeadDim), kRowBytes = kSlab * kElementBytes;
    constexpr int kPieces = kRowBytes / 16, kAtOnce = 32 / kPieces;  // rows
    const int piece = lane % kPieces;
    const char* data =
        static_cast<const char*>(from.data) + (head * from.stride_head + piece * 8) * kElementBytes;
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      int64_t offset =
          (rows[i].page * from.stride_page + rows[i].row * from.stride_row) * kElementBytes;
      if (rows[i].page >= c.params.pages.num_pages) offset = -1;  // zeros
      const int begin = 32 * i / kGroup;
      const int end = min(begin + 32 / kGroup, (kGroups - warp + kGatherWarps - 1) / kGatherWarps);
#pragma unroll 1
      for (int group = begin; group < end; ++group) {
#pragma unroll
        for (int first = 0; first < kGroup; first += kAtOnce) {
          const int row = first + lane / kPieces;  // of the group
          const int64_t of_row = __shfl_sync(0xffffffffu, offset, (group - begin) * kGroup + row);
          const ptx::SmemAddr to = stage +
                                   ((warp + group * kGatherWarps) * kGroup + row) * kRowBytes +
                                   16 * (piece ^ slab_swizzle<kSlab>(row));
#pragma unroll
          for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
            const bool is_there = of_row >= 0 && slab * kSlab + piece * 8 < from.columns;
            ptx::cp_async_cg_16(to + slab * T.tile_n * kRowBytes,
                                is_there ? data + of_row + slab * kRowBytes : from.data,
                                is_there ? 16 : 0);
          }
        }
      }
    }
  }

  const FwdContext<T>& c;
  const int warp;
  const int lane = threadIdx.x % 32;
  PipelineState<kTileSlots> slot;
  PipelineState<T.kv_stages> k, v;
  PagePlace rows_of_k[kRowsOfLane], rows_of_v[kRowsOfLane];
};

}  // namespace fa4::sm90
