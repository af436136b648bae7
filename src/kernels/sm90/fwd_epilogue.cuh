// The end of a tile: a warpgroup's 64 rows of out to global memory, and their lse.
#pragma once

#include "kernels/attention/softmax.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/fwd_context.cuh"

namespace fa4::sm90 {

template <FwdTraits T>
struct Epilogue {
  static constexpr int kSlab = slab_columns(T.head_dim_v);
  static constexpr int kRowBytes = kSlab * kElementBytes;
  static constexpr int kSlabBytes = 64 * kRowBytes;

  const Context<T>& c;
  const WorkTile& tile;
  int warpgroup;
  int lane;  // in the warpgroup

  // Where a row of the tile lies in its sequence.
  struct Place {
    int position;
    int head;
  };
  __device__ Place place(int row_in_tile) const {
    const int packed_row = tile.m_block * T.tile_m + row_in_tile;
    const int g = c.params.group_log2;
    return {packed_row >> g, (tile.head << g) + (packed_row & ((1 << g) - 1))};
  }

  // The sink logit of the row's head times log2(e), -inf without sinks.
  __device__ float sink_log2(int row_in_tile) const {
    const Place at = place(row_in_tile);
    const bool has_sink = c.params.sink != nullptr && at.position < tile.seqlen_q;
    return has_sink ? c.params.sink[at.head] * kLog2E : -kInfinity;
  }

  __device__ void store_lse(int row_in_tile, float lse) const {
    const FwdParams& p = c.params;
    const Place at = place(row_in_tile);
    if (p.lse == nullptr || at.position >= tile.seqlen_q || lane % 4 != 0) return;
    const int64_t index =
        p.cu_seqlens_q == nullptr
            ? (int64_t{tile.batch} * p.heads_q + at.head) * p.seqlen_q + at.position
            : int64_t{at.head} * p.total_q + tile.offset_q + at.position;
    p.lse[index] = lse;
  }

  // Through the place of the tile's Q. A warpgroup's own rows only: no other warpgroup is waited
  // for. The store is still being read on return.
  template <int kOutputs>
  __device__ void store_out(const float (&rO)[kOutputs], int stage) const {
    const FwdParams& p = c.params;
    unsigned char* rows =
        c.smem + c.kSmem.q + stage * q_bytes(T) + warpgroup * 64 * T.head_dim * kElementBytes;
    ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);  // all its warps are done with Q
    stage_rows(rO, rows);
    ptx::fence_proxy_async_shared();
    ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);

    const int first_row = (tile.m_block * T.tile_m + 64 * warpgroup) >> p.group_log2;
    const bool dense = p.cu_seqlens_q == nullptr;  // TMA clips at the sequence's end
    if (dense || first_row + (64 >> p.group_log2) <= tile.seqlen_q) {
      if (lane == 0) store_by_tma(rows, first_row, dense ? tile.batch : 0);
    } else {
      copy_rows(rows);
      ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);
    }
  }

 private:
  // 16-byte chunks of a row are permuted as TMA's swizzle does.
  __device__ static int swizzle(int row) { return kSlab == 64 ? row & 7 : row / 2 & 3; }

  template <int kOutputs>
  __device__ void stage_rows(const float (&rO)[kOutputs], unsigned char* rows) const {
    const int matrix = lane % 32 / 8;
    const int row = 16 * (lane / 32) + lane % 8 + 8 * (matrix & 1);
    const ptx::SmemAddr to = ptx::smem_addr(rows) + row * kRowBytes;
#pragma unroll
    for (int i = 0; i < T.head_dim_v / 16; ++i) {
      const int slab = 16 * i / kSlab, chunk = 2 * (i % (kSlab / 16)) + matrix / 2;
      ptx::stmatrix_x4(to + slab * kSlabBytes + 16 * (chunk ^ swizzle(row)),
                       pack<T.element>(rO[8 * i], rO[8 * i + 1]),
                       pack<T.element>(rO[8 * i + 2], rO[8 * i + 3]),
                       pack<T.element>(rO[8 * i + 4], rO[8 * i + 5]),
                       pack<T.element>(rO[8 * i + 6], rO[8 * i + 7]));
    }
  }

  __device__ void store_by_tma(const unsigned char* rows, int first_row, int batch) const {
#pragma unroll
    for (int slab = 0; slab < num_slabs(T.head_dim_v); ++slab) {
      ptx::cp_async_bulk_tensor_4d_store(&c.params.out, ptx::smem_addr(rows) + slab * kSlabBytes,
                                         slab * kSlab, tile.head << c.params.group_log2,
                                         tile.offset_q + first_row, batch);
    }
    ptx::cp_async_bulk_commit_group();
  }

  // Rows that reach past a packed sequence: all threads copy 16 bytes each of those inside it.
  __device__ void copy_rows(const unsigned char* rows) const {
    constexpr int kChunks = kRowBytes / 16, kRowChunks = kChunks * num_slabs(T.head_dim_v);
    const FwdParams& p = c.params;
#pragma unroll 1
    for (int i = lane; i < 64 * kRowChunks; i += kWarpgroupThreads) {
      const int row = i / kRowChunks, slab = i / kChunks % num_slabs(T.head_dim_v);
      const int chunk = i % kChunks, column = slab * kSlab + chunk * 8;
      const Place at = place(64 * warpgroup + row);
      if (at.position >= tile.seqlen_q || column >= p.head_dim_v) continue;
      const int64_t element = (int64_t{tile.offset_q} + at.position) * p.out_stride_seqlen +
                              at.head * p.out_stride_head + column;
      *reinterpret_cast<uint4*>(static_cast<unsigned char*>(p.out_data) + element * kElementBytes) =
          *reinterpret_cast<const uint4*>(rows + slab * kSlabBytes + row * kRowBytes +
                                          16 * (chunk ^ swizzle(row)));
    }
  }
};

}  // namespace fa4::sm90
