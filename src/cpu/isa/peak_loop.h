// The loop of every vector path's ceiling.
#pragma once

#include <cstdint>

namespace fa4::internal {
namespace {

// kSums independent chains of multiply_add, eight links each a round. Returns the sum of all
// products in a lane, which tells how many there were.
template <class Path, int kSums>
float run_peak_loop(int64_t rounds) {
  typename Path::F sums[kSums];  // from different starts, or the compiler would keep one
  // Run-time values that the compiler cannot fold: about 2^-10 each, as floats and as bf16 pairs.
  const uint32_t small = 0x3a803a80u + static_cast<uint32_t>(rounds & 1);
  const auto a = Path::broadcast_unit(&small), b = a;
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sums[i] = Path::set1(static_cast<float>(i) * 0x1p-40f);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 8
    for (int link = 0; link < 8; ++link) {
#pragma GCC unroll 24
      for (int i = 0; i < kSums; ++i) sums[i] = Path::multiply_add(sums[i], a, b);
    }
  }
  auto total = sums[0];
#pragma GCC unroll 24
  for (int i = 1; i < kSums; ++i) total = Path::add(total, sums[i]);
  return Path::reduce_max(total);
}

}  // namespace
}  // namespace fa4::internal
