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

// A bit for each of a thread's columns [32 word, 32 word + 32) of one row that lies inside
// `bounds`, which count from the thread's first column of key 0; the block begins at key `first`.
__device__ inline uint32_t visible_columns(const KeyBounds& bounds, int first, int word = 0) {
  return low_bits(columns_below(bounds.end - first), word) &
         ~low_bits(columns_below(bounds.begin - first), word);
}

// Scores of row `r` become `hidden` where `visible`, bits of a word of its columns, does not have
// them. R2P moves seven bits to predicates at a time.
template <int kScores>
__device__ inline void mask_columns(float (&s)[kScores], int r, int word, uint32_t visible,
                                    float hidden) {
#pragma unroll
  for (int bit = 0; bit < 32; ++bit) {
    const int e = 32 * word + bit;
    if (e < kScores / 2 && (visible >> bit & 1) == 0) s[4 * (e / 2) + 2 * r + e % 2] = hidden;
  }
}

// Scores outside `bounds[r]` become -inf.
template <int kScores>
__device__ inline void mask_scores(float (&s)[kScores], const KeyBounds (&bounds)[2],
                                   int first_key) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int word = 0; word < (kScores / 2 + 31) / 32; ++word) {
      mask_columns(s, r, word, visible_columns(bounds[r], first_key, word), -kInfinity);
    }
  }
}

// Zeros the elements of an A operand in 16 bits (probabilities, dS) whose bit in `visible[r]` is 0:
// pair j of a row stands in p[j / 2][2 * (j % 2) + r].
template <int kSteps>
__device__ inline void hide_pairs(uint32_t (&p)[kSteps][4], const uint32_t (&visible)[2],
                                  int first_bit) {
  static_assert(4 * kSteps <= 32);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int j = 0; j < 2 * kSteps; ++j) {
      uint32_t& pair = p[j / 2][2 * (j % 2) + r];
      if ((visible[r] >> (first_bit + 2 * j) & 1) == 0) pair &= 0xffff0000u;
      if ((visible[r] >> (first_bit + 2 * j + 1) & 1) == 0) pair &= 0x0000ffffu;
    }
  }
}

}  // namespace fa4
