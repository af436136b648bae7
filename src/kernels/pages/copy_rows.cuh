// Rows of K or V out of pages of any size into a tile, 16 bytes a thread.
#pragma once

#include "kernels/pages/place.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// One of kWarps warps that share a tile of kRows rows. As many rows as it copies at once are its
// own, those of the other warps follow, then as many again. A lane finds the place of every 32nd of
// its warp's rows, and tells it to the lanes that copy the row: among these where the tile's slabs
// have kSlab columns. So many addresses of a lane (kAhead) are found before the first copy of them
// begins: a register must not be written until the copy has read it, which takes longer than to
// begin one. `kEndsInside`: columns, pairs of bytes, may end inside of 16 bytes, behind which
// anything may stand; those of 16 bits are a multiple of eight.
template <int kRows, int kWarps, int kSlab, int kAhead, bool kEndsInside = false>
struct PageRowCopier {
  // A row of a slab takes so many lanes, and a warp copies so many rows at once.
  static constexpr int row_bytes(int slab) { return slab * kElementBytes; }
  static constexpr int pieces(int slab) { return row_bytes(slab) / 16; }
  static constexpr int at_once(int slab) { return 32 / pieces(slab); }

  static constexpr int kGroup = at_once(kSlab);
  static constexpr int kGroups = kRows / kGroup;
  static constexpr int kRowsOfWarp = (kGroups + kWarps - 1) / kWarps * kGroup;
  static constexpr int kPlaces = (kRowsOfWarp + 31) / 32;  // of a lane
  static_assert(kRows % kGroup == 0);

  const PageParams& pages;
  int warp;
  int lane;

  // In the tile, of this lane's i-th place.
  __device__ int row_of(int i) const {
    const int own = 32 * i + lane % pieces(kSlab) * at_once(kSlab) + lane / pieces(kSlab);
    return (warp + own / kGroup * kWarps) * kGroup + own % kGroup;
  }

  // Where the rows of a lane's places are.
  struct Rows {
    int64_t addresses[kPlaces];
    // Those of all lanes end in the 4 GiB in which they begin: an address in a row is one addition
    // to the lower half.
    bool keep_upper_half;
  };
  // kSimple: pages are simple (PageParams::simple_log2).
  template <bool kSimple = false>
  __device__ Rows find(const PageRows& from, const char* first_of_head,
                       const PagePlace (&places)[kPlaces]) const {
    Rows rows;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      rows.addresses[i] = kSimple ? simple_address_of(pages, from, first_of_head, places[i])
                                  : address_of(pages, from, first_of_head, places[i]);
    }
    compare_halves(&rows);
    return rows;
  }
  // As many bytes further.
  __device__ static Rows moved(Rows rows, int64_t by) {
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) rows.addresses[i] += by;
    compare_halves(&rows);
    return rows;
  }

  // Begins the copies of the tile's first `count` rows; zeros go to those behind them, whose
  // addresses may be any. Slabs of the tile lie kRows rows apart.
  template <int kColumns>
  __device__ void copy(const PageRows& from, const Rows& rows, int count,
                       ptx::SmemAddr tile) const {
    if (count >= kRows && from.columns == kColumns && rows.keep_upper_half) {
      copy_rows<kColumns, true>(rows, kRows, kColumns, tile);
    } else {
      copy_rows<kColumns, false>(rows, count, from.columns, tile);
    }
  }

 private:
  __device__ static void compare_halves(Rows* rows) {
    constexpr uint32_t kMostBytes = 512;  // of a row
    bool keep = true;
#pragma unroll
    for (int64_t address : rows->addresses) keep &= static_cast<uint32_t>(address) < -kMostBytes;
    rows->keep_upper_half = __all_sync(0xffffffffu, keep) != 0;
  }

  // kWhole: all rows are there, have all columns and keep their upper half.
  template <int kColumns, bool kWhole>
  __device__ void copy_rows(const Rows& rows, int count, int columns, ptx::SmemAddr tile) const {
    constexpr int kSlabColumns = slab_columns(kColumns), kRowBytes = row_bytes(kSlabColumns);
    constexpr int kPieces = pieces(kSlabColumns), kAtOnce = at_once(kSlabColumns);
    constexpr int kSteps = kRowsOfWarp / kAtOnce;
    static_assert(kGroup % kAtOnce == 0);
    const int piece = lane % kPieces, first = warp * kGroup + lane / kPieces;
#pragma unroll
    for (int from = 0; from < kSteps; from += kAhead) {
      int64_t addresses[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead && from + i < kSteps; ++i) {
        addresses[i] = piece_of<kWhole>(
            told<kSlabColumns>(rows.addresses[(from + i) / kPieces], (from + i) % kPieces), piece);
      }
#pragma unroll
      for (int i = 0; i < kAhead && from + i < kSteps; ++i) {
        const int own = (from + i) * kAtOnce, of_warp = own / kGroup;
        if ((of_warp + 1) * kWarps > kGroups && warp + of_warp * kWarps >= kGroups) break;
        const int behind_first = of_warp * kWarps * kGroup + own % kGroup;
        const int swizzle = slab_swizzle<kSlabColumns>(first + behind_first % kGroupRows);
        const ptx::SmemAddr to = tile + (first + behind_first) * kRowBytes + 16 * (piece ^ swizzle);
        const bool is_there = behind_first < count - first;
        copy_piece<kColumns, kWhole>(addresses[i], is_there ? columns - piece * 8 : 0, to);
      }
    }
  }

  // The address of the row of which this lane copies a piece in a step, out of the 32 that the
  // lanes hold, one each, where slabs have kSlabColumns.
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

  template <bool kKeepsUpperHalf>
  __device__ static int64_t piece_of(int64_t row, int piece) {
    if constexpr (!kKeepsUpperHalf) return row + piece * 16;
    const uint32_t low = static_cast<uint32_t>(row) + piece * 16;
    return (row & ~int64_t{0xffffffff}) | low;
  }

  // This lane's piece of a row, in each slab; `left`: the row's columns from it on, behind which
  // there are zeros.
  template <int kColumns, bool kWhole>
  __device__ static void copy_piece(int64_t address, int left, ptx::SmemAddr to) {
    constexpr int kSlabColumns = slab_columns(kColumns), kRowBytes = row_bytes(kSlabColumns);
#pragma unroll
    for (int slab = 0; slab < num_slabs(kColumns); ++slab, left -= kSlabColumns) {
      const ptx::SmemAddr at = to + slab * kRows * kRowBytes;
      const char* data = reinterpret_cast<const char*>(address) + slab * kRowBytes;
      if constexpr (kWhole) {
        ptx::cp_async_cg_16(at, data);
      } else if constexpr (kEndsInside) {
        ptx::cp_async_cg_16_of(at, data, min(max(left, 0), 8) * kElementBytes);
      } else {
        ptx::cp_async_cg_16(at, data, left > 0);
      }
    }
  }
};

}  // namespace fa4
