// Bytes (e4m3) in shared memory as operands of mma.m16n8k16, made 16 bits in registers.
//
// A sum may be taken in any order, and so may the columns of an output be found: which of a
// product's k is which column of Q and K, and which of its n is which column of V, is chosen so
// that a thread reads 16 bytes side by side, and no two threads of a read from the same banks.
// Thread (g, t) = (lane / 4, lane % 4) has, in the layout of mma's B, row k of t and column n = g.
#pragma once

#include "kernels/mma/forward/traits.h"

namespace fa4::mma {

// B of S = Q Kᵀ: a row of K is a key. A word of a row's 16-byte piece is one k step: thread t's k
// of 2t, 2t + 1, 2t + 8 and 2t + 9 are the word's bytes, of columns 16 piece + 4 word on. Rows of
// 128 bytes have two pieces a thread (2t and 2t + 1), rows of 64 one.
template <int kHeadDim>
struct KeyPieces {
  static constexpr int kRowBytes = slab_bytes(kHeadDim);
  static constexpr int kOfSlab = kRowBytes / 64;  // pieces of a thread
  static constexpr int kCount = kHeadDim / kRowBytes * kOfSlab;
  static constexpr int kSteps = 4 * kCount;  // of 16 columns

  // The first column of thread t's piece.
  __device__ static int column(int piece, int t) {
    return piece / kOfSlab * kRowBytes + 16 * (kOfSlab * t + piece % kOfSlab);
  }
  // From a slab's first byte to the thread's piece of the first row whose number is g, and a
  // multiple of eight rows behind it.
  __device__ static int offset(int piece, int g, int t) {
    return piece / kOfSlab * kTileN * kRowBytes + g * kRowBytes +
           16 * ((kOfSlab * t + piece % kOfSlab) ^ slab_swizzle<kRowBytes / 2>(g));
  }
};

// B of O += P V: a row of V is a key, k, of which thread t has 2t, 2t + 1, 2t + 8 and 2t + 9. Of a
// slab's row thread g reads an eighth, 16 or 8 bytes: byte j of it is column g of tile j.
template <int kHeadDimV>
struct ValuePieces {
  static constexpr int kRowBytes = slab_bytes(kHeadDimV);
  static constexpr int kTiles = kRowBytes / 8;  // of 8 columns, in a slab
  static constexpr int kWords = kTiles / 4;
  static constexpr int kSlabs = kHeadDimV / kRowBytes;

  // The thread's k of a step of 16 keys.
  __device__ static int row(int i, int t) { return 2 * t + (i & 1) + 8 * (i >> 1); }
  // The thread's piece of that row, from the step's first row on.
  __device__ static int offset(int row, int g) {
    return row * kRowBytes + 16 * ((kTiles * g / 16) ^ slab_swizzle<kRowBytes / 2>(row)) +
           kTiles * g % 16;
  }
};

// Bytes of two rows side by side: pairs of bytes 0 and 1, or 2 and 3.
__device__ inline uint32_t pairs_of_lower(uint32_t row0, uint32_t row1) {
  return __byte_perm(row0, row1, 0x5140);
}
__device__ inline uint32_t pairs_of_upper(uint32_t row0, uint32_t row1) {
  return __byte_perm(row0, row1, 0x7362);
}

}  // namespace fa4::mma
