// The shapes of the kernels that put parts together: what rows saw of the parts of their keys
// (combine.cuh), and partial results of any origin (merge.cuh). Host and device.
#pragma once

namespace fa4 {

inline constexpr int kCombineWarps = 8;  // of a row
inline constexpr int kCombineThreads = 32 * kCombineWarps;
// Columns of a row go in pieces: four a lane.
inline constexpr int kPieceColumns = 128;
constexpr int combine_pieces(int columns) { return (columns + kPieceColumns - 1) / kPieceColumns; }
inline constexpr int kMergeThreads = 128;  // a warp a row
inline constexpr int kPartStatsBytes = 8;  // of a PartStats
// The most CTAs of a cluster that puts parts together without a second kernel: every GPC has room
// for more than one such cluster. Eight clusters of 16 took the time of two rounds on an H200.
inline constexpr int kMostClusterCtas = 8;
// From so many rows on, a warp for each is work for all SMs.
inline constexpr int kManyCombineRows = 1024;
// Rows of a CTA of the second kernel: one a warp where no row has more parts than a CTA has warps,
// or where rows are many.
constexpr int combine_rows(int most_parts, int rows) {
  return most_parts <= kCombineWarps || rows >= kManyCombineRows ? kCombineWarps : 1;
}

// Parts to merge whose addresses a kernel's parameter has room for: in 4 KB, which costs a launch
// least, or in the 32764 bytes that it may have.
inline constexpr int kFewMergedParts = 128;
inline constexpr int kMostMergedParts = 2000;

}  // namespace fa4
