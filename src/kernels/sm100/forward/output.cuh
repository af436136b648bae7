// Where a tile's output goes: from registers to shared memory as TMA wants it, and from there to
// global memory by the store warp.
#pragma once

#include "kernels/output/part_rows.cuh"
#include "kernels/output/rows.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm100/forward/context.cuh"

namespace fa4::sm100 {

// A row of a slab of out, and the slab of a Q tile, in bytes.
template <FwdTraits T>
inline constexpr int kOutRowBytes = slab_columns(T.head_dim_v) * kElementBytes;
template <FwdTraits T>
inline constexpr int kOutSlabBytes = kTileRows * kOutRowBytes<T>;

// One row of a Q tile, as the correction thread that owns it sees it.
template <FwdTraits T>
struct OutputRow {
  static constexpr int kOutElementBytes = T.out_f32 ? 4 : kElementBytes;

  const FwdContext<T>& c;
  const WorkTile& tile;
  int q_tile;
  int row;  // of the Q tile

  __device__ Place place() const {
    return place_of(c.params.heads, tile, first_row(c, tile, q_tile) + row);
  }

  __device__ bool sees_keys() const {
    const KeyBounds b =
        key_bounds_of(c.params.heads, c.params.mask, tile, first_row(c, tile, q_tile) + row);
    return !b.is_empty();
  }
  __device__ float sink() const { return sink_of(c.params.scores, tile, place()); }
  __device__ void store_lse(float lse) const {
    fa4::store_lse(c.params.output.lse, c.params.sequences, c.params.heads.heads_q, tile, place(),
                   lse);
  }

  // The workspace's row for the sums of this row, where the tile has a part of its rows' keys; -1:
  // there is no such row.
  __device__ int64_t part_row() const { return fa4::part_row<tile_m(T)>(c.params, tile, place()); }

  // The first byte of this row of out in global memory; null: the row does not exist.
  __device__ unsigned char* begin() const {
    const Place to = place();
    if (to.position >= tile.seqlen_q) return nullptr;
    return static_cast<unsigned char*>(c.params.output.data) +
           out_element(c.params, tile, to) * kOutElementBytes;
  }

  // Zeros, to global memory at once: the row sees nothing.
  __device__ void clear() const {
    unsigned char* row_begin = begin();
    if (row_begin == nullptr) return;
    const int bytes = c.params.output.head_dim_v * kOutElementBytes;
#pragma unroll 1
    for (int i = 0; i < bytes; i += 16) {
      *reinterpret_cast<uint4*>(row_begin + i) = uint4{0, 0, 0, 0};
    }
  }

  // The row's place in shared memory. A slab's pieces are 8 columns; which of them a piece takes
  // the place of depends on the row alone.
  struct Staging {
    static constexpr int kSlab = slab_columns(T.head_dim_v);
    unsigned char* begin;
    int swizzle;

    // Columns [first, first + kChunk) of the row; `first` is a multiple of kChunk, so that the
    // number of a piece in the chunk moves its place by itself.
    __device__ void put(int first, const float (&v)[kChunk]) const {
      unsigned char* slab = begin + first / kSlab * kOutSlabBytes<T>;
      const int in_row = (first % kSlab / 8 ^ swizzle) * 16;
#pragma unroll
      for (int i = 0; i < kChunk; i += 8) {
        *reinterpret_cast<uint4*>(slab + (in_row ^ i / 8 * 16)) =
            uint4{pack<T.element>(v[i], v[i + 1]), pack<T.element>(v[i + 2], v[i + 3]),
                  pack<T.element>(v[i + 4], v[i + 5]), pack<T.element>(v[i + 6], v[i + 7])};
      }
    }
  };
  __device__ Staging staging() const {
    return {c.smem + c.out_place(q_tile) + row * kOutRowBytes<T>,
            slab_swizzle<slab_columns(T.head_dim_v)>(row)};
  }
};

// The store warp.
template <FwdTraits T>
class Storer {
 public:
  __device__ explicit Storer(const FwdContext<T>& context) : c(context), p(context.params) {}

  __device__ void run() {
    TileReader<FwdContext<T>> tiles(c);
    PhasesOf<T, T.q_tiles, kOutFull> phases;
#pragma unroll 1
    for (tile = tiles.next(); tile.is_valid(); tile = tiles.next()) {
#pragma unroll 1
      for (int i = 0; i < T.q_tiles; ++i) {
        // Not sees_keys(i): a tile in registers takes no index that varies.
        if (!(i == 0 ? tile.sees_keys(0) : tile.sees_keys(1))) continue;
        phases.wait(c, kOutFull, i);
        store(i);
        __syncwarp();
        if (ptx::elect_sync()) ptx::mbarrier_arrive(c.barrier(kOutEmpty, i));
      }
    }
  }

 private:
  __device__ void store(int q_tile) const {
    const int first = first_row(c, tile.work, q_tile);
    if (may_store_by_tma(p, tile.work, first, kTileRows)) {
      if (ptx::elect_sync()) store_by_tma(q_tile, first >> p.heads.group_log2);
    } else {
      copy_rows<kTileRows, T.head_dim_v, kWarpThreads>(p, tile.work, c.smem + c.out_place(q_tile),
                                                       first, threadIdx.x % kWarpThreads);
    }
  }

  // Returns when TMA has read shared memory.
  __device__ void store_by_tma(int q_tile, int first_position) const {
    const int batch = batch_coordinate(p.sequences.cu_seqlens_q, tile.work);
    const ptx::SmemAddr from = c.smem_address(c.out_place(q_tile));
#pragma unroll
    for (int slab = 0; slab < num_slabs(T.head_dim_v); ++slab) {
      ptx::cp_async_bulk_tensor_5d_store(&p.maps.out, from + slab * kOutSlabBytes<T>,
                                         slab * slab_columns(T.head_dim_v), 0, tile.work.head,
                                         tile.work.offset_q + first_position, batch);
    }
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<0>();
  }

  const FwdContext<T>& c;
  const FwdParams& p;
  QTiles tile;
};

}  // namespace fa4::sm100
