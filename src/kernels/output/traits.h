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
// That put parts together without a second kernel: as many as every GPC has room for several times.
// Eight clusters of 16 took the time of two rounds on an H200.
inline constexpr int kMostClusterCtas = 8;
// CTAs of the second kernel: a warp a row where no row has more parts than a CTA has warps.
constexpr int combine_rows(int most_parts) {
  return most_parts <= kCombineWarps ? kCombineWarps : 1;
}

}  // namespace fa4
