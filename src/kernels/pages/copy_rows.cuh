// Rows of K or V out of pages of any size into a tile, 16 bytes a thread.
#pragma once

#include "kernels/pages/place.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// One of kWarps warps that share a tile of kRows rows. Eight rows are its own, those of the other
// warps follow, then eight again. A lane finds the place of every 32nd of its warp's rows and tells
// it to those that copy the row. `kEndsInside`: columns, pairs of bytes, may end inside of 16
// bytes, behind which anything may stand; those of 16 bits are a multiple of eight. `kTogether`:
// copies are begun without a branch between them, which takes the registers of several addresses;
// behind a branch each waits until the copy before has read its own.
template <int kRows, int kWarps, bool kTogether = true, bool kEndsInside = false>
struct PageRowCopier {
  static constexpr int kGroup = kGroupRows;
  static constexpr int kGroups = kRows / kGroup;
  static constexpr int kRowsOfWarp = (kGroups + kWarps - 1) / kWarps * kGroup;
  static constexpr int kPlaces = (kRowsOfWarp + 31) / 32;  // of a lane
  static_assert(kRows % kGroup == 0);

  const PageParams& pages;
  int warp;
  int lane;

  // In the tile, of this lane's i-th place.
  __device__ int row_of(int i) const {
    const int own = 32 * i + lane;
    return (warp + own / kGroup * kWarps) * kGroup + own % kGroup;
  }

  // Begins the copies; slabs of the tile lie kRows rows apart.
  template <int kColumns>
  __device__ void copy(const PageRows& from, int head, const PagePlace (&places)[kPlaces],
                       ptx::SmemAddr tile) const {
    constexpr int kSlab = slab_columns(kColumns), kRowBytes = kSlab * kElementBytes;
    constexpr int kPieces = kRowBytes / 16, kAtOnce = 32 / kPieces;  // rows
    const int piece = lane % kPieces;
    const char* data =
        static_cast<const char*>(from.data) + head * from.stride_head * kElementBytes;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int64_t offset =
          page_of(pages, places[i]) * from.stride_page + places[i].row * from.stride_row;
      // Of rows that are not there negative: zeros.
      const int64_t address =
          places[i].row < 0 ? -1 : reinterpret_cast<int64_t>(data + offset * kElementBytes);
#pragma unroll
      for (int of_place = 0; of_place < 32 / kGroup; ++of_place) {
        const int of_warp = 32 * i / kGroup + of_place, group = warp + of_warp * kWarps;
        const bool all_have_it = kTogether && (of_warp + 1) * kWarps <= kGroups;
        if (!all_have_it && group >= kGroups) break;
#pragma unroll
        for (int first = 0; first < kGroup; first += kAtOnce) {
          const int row = first + lane / kPieces;  // of the group
          const int64_t of_row = __shfl_sync(0xffffffffu, address, of_place * kGroup + row);
          const auto* pieces = reinterpret_cast<const char*>(of_row) + piece * 16;
          const ptx::SmemAddr to =
              tile + (group * kGroup + row) * kRowBytes + 16 * (piece ^ slab_swizzle<kSlab>(row));
#pragma unroll
          for (int slab = 0; slab < num_slabs(kColumns); ++slab) {
            const bool is_there = of_row >> 32 >= 0;
            const int column = slab * kSlab + piece * 8;
            const ptx::SmemAddr at = to + slab * kRows * kRowBytes;
            const char* data_at = pieces + slab * kRowBytes;
            if constexpr (kEndsInside) {
              const int columns = is_there ? min(max(from.columns - column, 0), 8) : 0;
              ptx::cp_async_cg_16_of(at, data_at, columns * kElementBytes);
            } else {
              ptx::cp_async_cg_16(at, data_at, is_there && column < from.columns);
            }
          }
        }
      }
    }
  }
};

}  // namespace fa4
