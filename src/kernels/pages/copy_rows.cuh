// Rows of K or V out of pages of any size into a tile, 16 bytes a thread.
#pragma once

#include "kernels/pages/place.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// One of kWarps warps that share a tile of kRows rows. Eight rows are its own, those of the other
// warps follow, then eight again. A lane finds the place of every 32nd of its warp's rows, and
// tells it to the lanes that copy the row: among these where the tile's slabs have kSlab columns.
// So many addresses of a lane (kAhead) are found before the first copy of them begins: a register
// must not be written until the copy has read it, which takes longer than to begin one.
// `kEndsInside`: columns, pairs of bytes, may end inside of 16 bytes, behind which anything may
// stand; those of 16 bits are a multiple of eight.
template <int kRows, int kWarps, int kSlab, int kAhead, bool kEndsInside = false>
struct PageRowCopier {
  static constexpr int kGroup = kGroupRows;
  static constexpr int kGroups = kRows / kGroup;
  static constexpr int kRowsOfWarp = (kGroups + kWarps - 1) / kWarps * kGroup;
  static constexpr int kPlaces = (kRowsOfWarp + 31) / 32;  // of a lane
  static_assert(kRows % kGroup == 0);

  // A row of a slab takes so many lanes, and a warp copies so many rows at once.
  static constexpr int row_bytes(int slab) { return slab * kElementBytes; }
  static constexpr int pieces(int slab) { return row_bytes(slab) / 16; }
  static constexpr int at_once(int slab) { return 32 / pieces(slab); }

  const PageParams& pages;
  int warp;
  int lane;

  // In the tile, of this lane's i-th place.
  __device__ int row_of(int i) const {
    const int own = 32 * i + lane % pieces(kSlab) * at_once(kSlab) + lane / pieces(kSlab);
    return (warp + own / kGroup * kWarps) * kGroup + own % kGroup;
  }

  // Where the rows of a lane's places are; negative for one that is not there: zeros.
  struct Rows {
    int64_t addresses[kPlaces];
    bool are_there;  // all of the warp's
  };
  __device__ Rows find(const PageRows& from, int head, const PagePlace (&places)[kPlaces]) const {
    const char* data =
        static_cast<const char*>(from.data) + head * from.stride_head * kElementBytes;
    Rows rows;
    bool are_there = true;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const bool is_there = places[i].row >= 0;
      const auto page = static_cast<uint32_t>(clamped_page(pages, places[i]));
      const auto row = static_cast<uint32_t>(places[i].row);
      const int64_t offset = page * from.stride_page + row * from.stride_row;
      rows.addresses[i] = is_there ? reinterpret_cast<int64_t>(data + offset * kElementBytes) : -1;
      are_there = are_there && (is_there || row_of(i) >= kRows);
    }
    rows.are_there = __all_sync(0xffffffffu, are_there) != 0;
    return rows;
  }

  // Begins the copies; slabs of the tile lie kRows rows apart.
  template <int kColumns>
  __device__ void copy(const PageRows& from, const Rows& rows, ptx::SmemAddr tile) const {
    if (rows.are_there && from.columns == kColumns) {
      copy_rows<kColumns, true>(rows, kColumns, tile);
    } else {
      copy_rows<kColumns, false>(rows, from.columns, tile);
    }
  }

 private:
  // kWhole: all rows are there and have all columns.
  template <int kColumns, bool kWhole>
  __device__ void copy_rows(const Rows& rows, int columns, ptx::SmemAddr tile) const {
    constexpr int kSlabColumns = slab_columns(kColumns), kRowBytes = row_bytes(kSlabColumns);
    constexpr int kPieces = pieces(kSlabColumns), kAtOnce = at_once(kSlabColumns);
    constexpr int kSteps = kRowsOfWarp / kAtOnce;
    const int piece = lane % kPieces;
#pragma unroll
    for (int from = 0; from < kSteps; from += kAhead) {
      int64_t addresses[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead && from + i < kSteps; ++i) {
        addresses[i] =
            told<kSlabColumns>(rows.addresses[(from + i) / kPieces], (from + i) % kPieces);
      }
#pragma unroll
      for (int i = 0; i < kAhead && from + i < kSteps; ++i) {
        const int of_warp = (from + i) * kAtOnce / kGroup, group = warp + of_warp * kWarps;
        if ((of_warp + 1) * kWarps > kGroups && group >= kGroups) break;
        const int row = (from + i) * kAtOnce % kGroup + lane / kPieces;  // of the group
        const ptx::SmemAddr to = tile + (group * kGroup + row) * kRowBytes +
                                 16 * (piece ^ slab_swizzle<kSlabColumns>(row));
        copy_row<kColumns, kWhole>(addresses[i], columns, piece, to);
      }
    }
  }

  // Of the 32 rows whose addresses the lanes have, one each, that of which this lane copies a piece
  // in a step, where slabs have kSlabColumns.
  template <int kSlabColumns>
  __device__ int64_t told(int64_t address, int step) const {
    if constexpr (kSlabColumns == kSlab) {
      return __shfl_sync(0xffffffffu, address, step, pieces(kSlab));
    } else {
      const int row = step * at_once(kSlabColumns) + lane / pieces(kSlabColumns);
      const int from = row % at_once(kSlab) * pieces(kSlab) + row / at_once(kSlab);
      return __shfl_sync(0xffffffffu, address, from);
    }
  }

  // This lane's piece of a row, in each slab.
  template <int kColumns, bool kWhole>
  __device__ static void copy_row(int64_t address, int columns, int piece, ptx::SmemAddr to) {
    constexpr int kSlabColumns = slab_columns(kColumns), kRowBytes = row_bytes(kSlabColumns);
    const auto* row = reinterpret_cast<const char*>(address) + piece * 16;
#pragma unroll
    for (int slab = 0; slab < num_slabs(kColumns); ++slab) {
      const ptx::SmemAddr at = to + slab * kRows * kRowBytes;
      const char* data = row + slab * kRowBytes;
      if constexpr (kWhole) {
        ptx::cp_async_cg_16(at, data);
      } else {
        const bool is_there = address >> 32 >= 0;
        const int left = columns - slab * kSlabColumns - piece * 8;
        if constexpr (kEndsInside) {
          const int copied = is_there ? min(max(left, 0), 8) : 0;
          ptx::cp_async_cg_16_of(at, data, copied * kElementBytes);
        } else {
          ptx::cp_async_cg_16(at, data, is_there && left > 0);
        }
      }
    }
  }
};

}  // namespace fa4
