// The shape of the kernel that puts together what rows saw of the parts of their keys. Host and
// device.
#pragma once

namespace fa4 {

inline constexpr int kCombineWarps = 4;  // of a row
inline constexpr int kCombineThreads = 32 * kCombineWarps;
inline constexpr int kCombineColumns = 256;  // of a row, at most
inline constexpr int kPartStatsBytes = 8;    // of a PartStats

}  // namespace fa4
