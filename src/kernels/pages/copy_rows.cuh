// Rows of K or V out of pages of any size into a tile, 16 bytes a thread.
#pragma once

#include "kernels/pages/place.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// One of kWarps warps that share a tile of kRows rows. Eight rows are its own, those of the other
// warps follow, then eight again. A lane finds the place of every 32nd of its warp's rows and tells
// it to those that copy the row.
template <int kRows, int kWarps>
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
        static_cast<const char*>(from.data) + (head * from.stride_head + piece * 8) * kElementBytes;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      int64_t offset =
          (page_of(pages, places[i]) * from.stride_page + places[i].row * from.stride_row) *
          kElementBytes;
      if (places[i].row < 0) offset = -1;  // zeros
      const int begin = 32 * i / kGroup;
      const int end = min(begin + 32 / kGroup, (kGroups - warp + kWarps - 1) / kWarps);
#pragma unroll 2
      for (int group = begin; group < end; ++group) {
#pragma unroll
        for (int first = 0; first < kGroup; first += kAtOnce) {
          const int row = first + lane / kPieces;  // of the group
          const int64_t of_row = __shfl_sync(0xffffffffu, offset, (group - begin) * kGroup + row);
          const ptx::SmemAddr to = tile + ((warp + group * kWarps) * kGroup + row) * kRowBytes +
                                   16 * (piece ^ slab_swizzle<kSlab>(row));
#pragma unroll
          for (int slab = 0; slab < num_slabs(kColumns); ++slab) {
            // The address of what is not there goes nowhere, but nothing is read from it: choosing
            // another one would keep the next copy waiting for this one's registers.
            const int there = (from.columns - slab * kSlab - piece * 8) * kElementBytes;
            ptx::cp_async_cg_16(to + slab * kRows * kRowBytes, data + of_row + slab * kRowBytes,
                                of_row < 0 ? 0 : max(0, min(there, 16)));
          }
        }
      }
    }
    ptx::cp_async_commit_group();
  }
};

}  // namespace fa4
