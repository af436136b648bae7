// The load warp: Q tiles, and K and V blocks through one ring, in the order of their use.
#pragma once

#include "kernels/geometry/step_sequence.h"
#include "kernels/pages/copy_rows.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm100/forward/context.cuh"
#include "kernels/tile/clear_rows.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
class Loader {
 public:
  __device__ explicit Loader(const FwdContext<T>& context) : c(context), p(context.params) {}

  __device__ void run() {
    TileReader<FwdContext<T>> tiles(c);
#pragma unroll 1
    for (tile = tiles.next(); tile.is_valid(); tile = tiles.next()) {
      find_places();
#pragma unroll 1
      for (StepSequence<T.q_tiles> steps(tile.blocks); !steps.is_done(); steps.advance()) {
        if (steps.is_first(0)) load_q(0);
        load_k(steps.block());
        // After K: its place may be free only after a product with this K.
        if (T.q_tiles > 1 && steps.is_first(1)) load_q(1);
        load_v(steps.block());
      }
    }
    drain();
  }

 private:
  static constexpr int kQkSlab = slab_columns(T.head_dim);
  static constexpr int kVSlab = slab_columns(v_columns(T));
  using Copier = PageRowCopier<kTileN, 1, slab_columns(T.head_dim), 4>;
  static constexpr int kGathered = 4;  // rows that a lane asks for at once
  static constexpr int kPlaces = T.pages == Pages::kRows      ? Copier::kPlaces
                                 : T.pages == Pages::kGathers ? kGathered
                                                              : 1;  // of a lane
  // Rows that are not there are zeros in V, too; else a tail is cleared.
  static constexpr bool kZeroTails = T.pages == Pages::kRows || T.pages == Pages::kGathers;

  // What the loads of a tile have in common. Sequences of a packed tensor are one batch to TMA.
  __device__ void find_places() {
    kv_head = tile.work.head / p.heads.tile_heads_per_kv;
    kv_batch = batch_coordinate(p.sequences.cu_seqlens_k, tile.work);
    const bool is_cut =
        T.cta_group == 1 && keys_have_tails(p.sequences) && tile.work.seqlen_k % kTileN != 0;
    cut_block = is_cut ? tile.work.seqlen_k / kTileN : -1;
  }

  // What is loaded is announced where the MMA thread waits, for all CTAs of the group together.
  __device__ void expect(ptx::SmemAddr barrier, int bytes) const {
    if (c.group.leads()) ptx::mbarrier_arrive_expect_tx(barrier, T.cta_group * bytes);
  }
  __device__ void load(ptx::SmemAddr to, const TensorMap& map, ptx::SmemAddr barrier, int column,
                       int head, int position, int batch) const {
    if constexpr (T.cta_group == 1) {
      ptx::cp_async_bulk_tensor_4d_load(to, &map, barrier, column, head, position, batch);
    } else {
      ptx::cp_async_bulk_tensor_4d_load_pair(to, &map, ptx::mapa(barrier, 0), column, head,
                                             position, batch);
    }
  }
  // Q has a dimension more: a box takes all heads of the group, from head 0 on.
  __device__ void load(ptx::SmemAddr to, const TensorMap& map, ptx::SmemAddr barrier, int column,
                       int head_of_group, int group, int position, int batch) const {
    if constexpr (T.cta_group == 1) {
      ptx::cp_async_bulk_tensor_5d_load(to, &map, barrier, column, head_of_group, group, position,
                                        batch);
    } else {
      ptx::cp_async_bulk_tensor_5d_load_pair(to, &map, ptx::mapa(barrier, 0), column, head_of_group,
                                             group, position, batch);
    }
  }

  __device__ void load_q(int q_tile) {
    const auto phase = phases.next(kQEmpty, q_tile);
    phase.wait(c, kQEmpty, q_tile);
    // Out took Q's place: TMA must have read the last out. Each Q had one, so that phases agree.
    if constexpr (out_takes_q(T)) phase.wait(c, kOutEmpty, q_tile);
    if (ptx::elect_sync()) {
      expect(c.barrier(kQFull, q_tile), q_tile_bytes(T));
      const int position =
          tile.work.offset_q + (first_row(c, tile.work, q_tile) >> p.heads.group_log2);
      const ptx::SmemAddr to = c.smem_address(c.kSmem.q + q_tile * q_tile_bytes(T));
#pragma unroll
      for (int slab = 0; slab < num_slabs(T.head_dim); ++slab) {
        load(to + slab * kTileRows * kQkSlab * kElementBytes, p.maps.q, c.barrier(kQFull, q_tile),
             slab * kQkSlab, 0, tile.work.head, position,
             batch_coordinate(p.sequences.cu_seqlens_q, tile.work));
      }
    }
    __syncwarp();
  }

  __device__ Copier copier() const { return {p.pages, 0, static_cast<int>(threadIdx.x % 32)}; }

  // Finds the places of a block of K, and then of V: it reads the page table before anybody waits
  // for a stage.
  __device__ void find_places_in_pages(int n) {
    const int32_t* entries = page_entries(p.pages, tile.work.batch, kv_head);
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      places[i] = page_place(p.pages, entries, tile.work.seqlen_k, n * kTileN + row_of_place(i));
    }
  }

  // Which row of the block is this lane's i-th place.
  __device__ int row_of_place(int i) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (T.pages == Pages::kRows) return copier().row_of(i);
    if constexpr (T.pages == Pages::kGathers) return lane * kGathered + i;
    return lane * p.pages.box_rows;
  }

  // Out of pages, behind what the elected lane announced: a box a lane, or four rows. Or copies,
  // that nobody announces.
  template <int kColumns>
  __device__ void load_pages(int n, const TensorMap& map, const PageRows& rows, int to,
                             ptx::SmemAddr barrier) const {
    constexpr int kSlab = slab_columns(kColumns), kRowBytes = kSlab * kElementBytes;
    if constexpr (T.pages == Pages::kBoxes) {
      const int row = row_of_place(0);
      if (row < kTileN) {
        const int page = page_of(p.pages, places[0]), row_of_page = max(places[0].row, 0);
#pragma unroll
        for (int slab = 0; slab < num_slabs(kColumns); ++slab) {
          load(c.smem_address(to + (slab * kTileN + row) * kRowBytes), map, barrier, slab * kSlab,
               kv_head, row_of_page, page);
        }
      }
      __syncwarp();
    } else if constexpr (T.pages == Pages::kGathers) {
      int gathered[kGathered];
#pragma unroll
      for (int i = 0; i < kGathered; ++i) {
        gathered[i] = gathered_row_of(p.pages, rows, kv_head, places[i]);
      }
#pragma unroll
      for (int slab = 0; slab < num_slabs(kColumns); ++slab) {
        ptx::cp_async_bulk_tensor_2d_gather4_load(
            c.smem_address(to + (slab * kTileN + row_of_place(0)) * kRowBytes), &map, barrier,
            slab * kSlab, gathered);
      }
      __syncwarp();
    } else {
      copier().template copy<kColumns>(rows,
                                       copier().find(rows, first_of_head(rows, kv_head), places),
                                       tile.work.seqlen_k - n * kTileN, c.smem_address(to));
      // Each lane's copies arrive by themselves, and the warp goes on. Who multiplies has the
      // fence.
      ptx::cp_async_mbarrier_arrive_noinc(barrier);
    }
  }

  // A block of K, or this CTA's rows of it.
  __device__ void load_k(int n) {
    if constexpr (T.pages != Pages::kNone) find_places_in_pages(n);
    c.wait(kKvEmpty, kv.stage, kv.phase ^ 1);
    if (is_uneven(T) && kv.stage == 0) {  // reaches into the last K of the stage after it
      KvRing<T> next = kv;
      next.advance();
      c.wait(kKvEmpty, next.stage, next.phase ^ 1);
    }
    if (T.pages != Pages::kRows && ptx::elect_sync()) {
      expect(c.barrier(kKvFull, kv.stage), k_bytes(T));
      const int row = n * kTileN + static_cast<int>(c.group.rank) * k_rows(T);
#pragma unroll
      for (int slab = 0; T.pages == Pages::kNone && slab < num_slabs(T.head_dim); ++slab) {
        load(
            c.smem_address(c.kv_place(kv.stage, true) + slab * k_rows(T) * kQkSlab * kElementBytes),
            p.maps.k, c.barrier(kKvFull, kv.stage), slab * kQkSlab, kv_head,
            tile.work.offset_k + row, kv_batch);
      }
    }
    __syncwarp();
    if constexpr (T.pages != Pages::kNone) {
      load_pages<T.head_dim>(n, p.maps.k, p.pages.k, c.kv_place(kv.stage, true),
                             c.barrier(kKvFull, kv.stage));
    }
    kv.advance();
  }

  // A block of V, or this CTA's columns of it. Rows past the sequence's end may hold anything where
  // TMA does not fill them with zeros.
  __device__ void load_v(int n) {
    const bool clear = !kZeroTails && n == cut_block;
    c.wait(kKvEmpty, kv.stage, kv.phase ^ 1);
    if (T.pages != Pages::kRows && ptx::elect_sync()) {
      const ptx::SmemAddr barrier = clear ? c.barrier(kVRaw) : c.barrier(kKvFull, kv.stage);
      expect(barrier, v_bytes(T));
#pragma unroll
      for (int slab = 0; T.pages == Pages::kNone && slab < num_slabs(v_columns(T)); ++slab) {
        load(c.smem_address(c.kv_place(kv.stage, false) + slab * kTileN * kVSlab * kElementBytes),
             p.maps.v, barrier, static_cast<int>(c.group.rank) * v_columns(T) + slab * kVSlab,
             kv_head, tile.work.offset_k + n * kTileN, kv_batch);
      }
    }
    __syncwarp();
    if constexpr (T.pages != Pages::kNone) {
      load_pages<v_columns(T)>(n, p.maps.v, p.pages.v, c.kv_place(kv.stage, false),
                               clear ? c.barrier(kVRaw) : c.barrier(kKvFull, kv.stage));
    }
    if (clear) {
      phases.wait(c, kVRaw);
      clear_rows<kTileN, v_columns(T)>(c.smem + c.kv_place(kv.stage, false),
                                       tile.work.seqlen_k - n * kTileN);
      if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kKvFull, kv.stage));
      __syncwarp();
    }
    kv.advance();
  }

  // Waits until everything loaded was used: the tensor core's last commits must find the CTA alive.
  __device__ void drain() {
#pragma unroll 1
    for (int i = 0; i < T.kv_stages; ++i) {
      c.wait(kKvEmpty, kv.stage, kv.phase ^ 1);
      kv.advance();
    }
#pragma unroll 1
    for (int i = 0; i < T.q_tiles; ++i) phases.wait(c, kQEmpty, i);
  }

  const FwdContext<T>& c;
  const FwdParams& p;
  QTiles tile;
  int kv_head, kv_batch;  // of the tile
  int cut_block;          // of V, which ends in what may hold anything, or -1
  PagePlace places[kPlaces];
  KvRing<T> kv;
  PhasesOf<T, T.q_tiles, kQEmpty, kVRaw> phases;
};

}  // namespace fa4::sm100
