// What host and device must agree on to add up f32 matrices.
#pragma once

namespace fa4 {

inline constexpr int kSumThreads = 256;          // of a CTA
inline constexpr int kSumElementsPerThread = 4;  // neighbours are those of neighbouring threads
inline constexpr int kSumElements = kSumThreads * kSumElementsPerThread;  // of a CTA

}  // namespace fa4
