// The shapes of the kernels that put parts together: what rows saw of the parts of their keys
// (combine.cuh), and partial results of any origin (merge.cuh). Host and device.
#pragma once

namespace fa4 {

inline constexpr int kCombineWarps = 4;  // of a row
inline constexpr int kCombineThreads = 32 * kCombineWarps;
inline constexpr int kCombineColumns = 256;  // of a row, at most
inline constexpr int kMergeThreads = 128;    // a warp a row
inline constexpr int kPartStatsBytes = 8;    // of a PartStats

}  // namespace fa4
