// Hiding scores outside a row's key bounds, in the register layout of a wgmma accumulator.
#pragma once

#include "kernels/geometry/block_range.h"
#include "kernels/tile/pack.cuh"

namespace fa4 {

// A thread's columns of one row are 8 (e / 2) + e % 2, e = 0, 1, ...: how many lie below `limit`.
__device__ inline int columns_below(int limit) {
  const int groups = limit >> 3, rest = limit & 7;
  return limit <= 0 ? 0 : 2 * groups + (rest < 2 ? rest : 2);
}

// Bits [0, count) of word `word`.
__device__ inline uint32_t low_bits(int count, int word) {
  const int in_word = count - 32 * word;
  return __funnelshift_lc(0xffffffffu, 0u, in_word > 0 ? in_word : 0);
}

// Scores outside `bounds[r]` become -inf; both count from the thread's first column of key 0, the
// block begins at `first_key`. One bit a column: R2P moves seven of them to predicates at a time.
template <int kScores>
__device__ inline void mask_scores(float (&s)[kScores], const KeyBounds (&bounds)[2], int first_key,
                                   float hidden = -kInfinity) {
  constexpr int kColumns = kScores / 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int begin = columns_below(bounds[r].begin - first_key);
    const int end = columns_below(bounds[r].end - first_key);
#pragma unroll
    for (int word = 0; word < (kColumns + 31) / 32; ++word) {
      const uint32_t visible = low_bits(end, word) & ~low_bits(begin, word);
#pragma unroll
      for (int bit = 0; bit < 32; ++bit) {
        const int e = 32 * word + bit;
        if (e < kColumns && (visible >> bit & 1) == 0) s[4 * (e / 2) + 2 * r + e % 2] = hidden;
      }
    }
  }
}

// The same for A operands in 16 bits (probabilities, dS), of which those outside become 0: pair j
// of a row stands in p[j / 2][2 * (j % 2) + r].
template <int kSteps>
__device__ inline void hide_pairs(uint32_t (&p)[kSteps][4], const KeyBounds (&bounds)[2],
                                  int first_column) {
  static_assert(4 * kSteps <= 32);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int begin = columns_below(bounds[r].begin - first_column);
    const int end = columns_below(bounds[r].end - first_column);
    const uint32_t visible = low_bits(end, 0) & ~low_bits(begin, 0);
#pragma unroll
    for (int j = 0; j < 2 * kSteps; ++j) {
      uint32_t& pair = p[j / 2][2 * (j % 2) + r];
      if ((visible >> (2 * j) & 1) == 0) pair &= 0xffff0000u;
      if ((visible >> (2 * j + 1) & 1) == 0) pair &= 0x0000ffffu;
    }
  }
}

}  // namespace fa4
