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

}  // namespace fa4
