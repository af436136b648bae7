// What host and device must agree on to append to a cache.
#pragma once

namespace fa4 {

inline constexpr int kAppendThreads = 256;  // of a CTA
inline constexpr int kAppendPiece = 8;      // elements that a thread moves: 16 bytes, or 8

}  // namespace fa4
