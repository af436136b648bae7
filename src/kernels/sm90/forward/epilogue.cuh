// The end of a tile: a warpgroup's 64 rows of out to global memory, and their lse.
#pragma once

#include "kernels/output/exchange_parts.cuh"
#include "kernels/output/part_rows.cuh"
#include "kernels/output/rows.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/forward/context.cuh"

namespace fa4::sm90 {

template <FwdTraits T>
struct Epilogue {
  static constexpr int kSlab = slab_columns(T.head_dim_v);
  static constexpr int kRowBytes = kSlab * kElementBytes;
  static constexpr int kSlabBytes = kWarpgroupRows * kRowBytes;

  const FwdContext<T>& c;
  const WorkTile& tile;
  int warpgroup;
  int slice;  // which 64 of the tile's rows
  int lane;   // in the warpgroup

  __device__ int packed_row(int row_in_tile) const {
    return packed_row_of(tile, T.tile_m, row_in_tile);
  }
  __device__ Place place(int row_in_tile) const {
    return place_of(c.params.heads, tile, packed_row(row_in_tile));
  }

  __device__ bool sees_keys(int row_in_tile) const {
    const KeyBounds b = key_bounds_of(c.params.heads, c.params.mask, tile, packed_row(row_in_tile));
    return !b.is_empty();
  }
  __device__ float sink(int row_in_tile) const {
    return sink_of(c.params.scores, tile, place(row_in_tile));
  }
  __device__ void store_lse(int row_in_tile, float lse) const {
    fa4::store_lse(c.params.output.lse, c.params.sequences, c.params.heads.heads_q, tile,
                   place(row_in_tile), lse);
  }

  // Sums of a part of the keys, and what they are relative to: those of the rows that exist. `r`:
  // of the thread's two rows.
  template <int kOutputs>
  __device__ void store_part(const float (&rO)[kOutputs], int r, int64_t row) const {
    if (row < 0) return;
    float* to = c.params.parts.sums + row * T.head_dim_v + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i) {
      *reinterpret_cast<float2*>(to + 8 * i) = {rO[4 * i + 2 * r], rO[4 * i + 2 * r + 1]};
    }
  }
  __device__ void store_part_stats(const PartStats& stats, int64_t row) const {
    if (row >= 0) c.params.parts.stats[row] = stats;
  }
  // The workspace's row for a row of the tile; -1: the row does not exist.
  __device__ int64_t part_row(int row_in_tile) const {
    return fa4::part_row<T.tile_m>(c.params, tile, place(row_in_tile));
  }

  // Out of 16 bits is staged in the slot of the warpgroup's rows of Q. The TMA store may still be
  // reading it on return (Consumer::release_q waits for that).
  template <int kOutputs>
  __device__ void store_out(const float (&rO)[kOutputs], int slot) const {
    const FwdParams& p = c.params;
    unsigned char* rows = c.smem + c.kSmem.q + slot * q_slot_bytes(T);
    ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);  // all its warps are done with Q
    if constexpr (T.out_f32) return store_floats(rO);
    stage_rows(rO, rows);
    ptx::fence_proxy_async_shared();
    ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);

    const int first_row = packed_row(kWarpgroupRows * slice);
    if (may_store_by_tma(p, tile, first_row, kWarpgroupRows)) {
      if (lane == 0) store_by_tma(rows, first_row);
    } else {
      copy_rows<kWarpgroupRows, T.head_dim_v, kWarpgroupThreads>(p, tile, rows, first_row, lane);
      ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);
    }
  }

 private:
  // The four threads of a quad write 32 bytes of a row at a time.
  template <int kOutputs>
  __device__ void store_floats(const float (&rO)[kOutputs]) const {
    const OutputParams& output = c.params.output;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Place to = place(fragment_row(slice, lane, r));
      if (to.position >= tile.seqlen_q) continue;
      float* row = static_cast<float*>(output.data) + out_element(c.params, tile, to);
#pragma unroll
      for (int i = 0; i < kOutputs / 4; ++i) {
        const int column = 8 * i + 2 * (lane % 4);
        if (column >= output.head_dim_v) continue;
        *reinterpret_cast<float2*>(row + column) = {rO[4 * i + 2 * r], rO[4 * i + 2 * r + 1]};
      }
    }
  }

  template <int kOutputs>
  __device__ void stage_rows(const float (&rO)[kOutputs], unsigned char* rows) const {
    const int matrix = lane % 32 / 8;
    const int row = 16 * (lane / 32) + lane % 8 + 8 * (matrix & 1);
    const ptx::SmemAddr to = ptx::smem_addr(rows) + row * kRowBytes;
#pragma unroll
    for (int i = 0; i < T.head_dim_v / 16; ++i) {
      const int slab = 16 * i / kSlab, piece = 2 * (i % (kSlab / 16)) + matrix / 2;
      ptx::stmatrix_x4(to + slab * kSlabBytes + 16 * (piece ^ slab_swizzle<kSlab>(row)),
                       pack<T.element>(rO[8 * i], rO[8 * i + 1]),
                       pack<T.element>(rO[8 * i + 2], rO[8 * i + 3]),
                       pack<T.element>(rO[8 * i + 4], rO[8 * i + 5]),
                       pack<T.element>(rO[8 * i + 6], rO[8 * i + 7]));
    }
  }

  __device__ void store_by_tma(const unsigned char* rows, int first_row) const {
    const FwdParams& p = c.params;
    const int head = head_of_group(p.heads, first_row);
    const int position = tile.offset_q + (first_row >> p.heads.group_log2);
    const int batch = batch_coordinate(p.sequences.cu_seqlens_q, tile);
#pragma unroll
    for (int slab = 0; slab < num_slabs(T.head_dim_v); ++slab) {
      ptx::cp_async_bulk_tensor_5d_store(&p.maps.out, ptx::smem_addr(rows) + slab * kSlabBytes,
                                         slab * kSlab, head, tile.head, position, batch,
                                         ptx::createpolicy_evict_first());
    }
    ptx::cp_async_bulk_commit_group();
  }
};

// Where a cluster shares the parts of a tile, the warpgroup of scheduler and loaders ends this
// CTA's share of the rows, since its loads are all on their way long before the products are done.
template <FwdTraits T>
__device__ inline void end_rows_of_cluster(const FwdContext<T>& c) {
  if (!c.exchanges_parts()) return;
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  // Parts come from CTAs that have waited for the launch before; where no row sees a key none come.
  ptx::griddepcontrol_wait();
  ptx::barrier_cluster_wait();
  PartReceiver<T.element, T.tile_m, T.head_dim_v, kWarpgroupThreads / 32>(c.params, c.inbox(), warp)
      .run();
}

}  // namespace fa4::sm90
