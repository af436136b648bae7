// Descriptors of matrix operands in shared memory, for the layouts that TMA writes (tile/slab.h).
#pragma once

#include "kernels/ptx/address.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// Addresses and offsets are in units of 16 bytes.
constexpr int descriptor_units(int bytes) { return bytes >> 4; }

// Slabs of kSlabColumns 16-bit columns, swizzled over groups of 8 rows that lie kGroupBytes apart.
// The fields of addresses are at the same bits for wgmma (PTX ISA 9.7.15.5.1.2.2) and tcgen05
// (9.7.16.4.1). The low word holds the address, the high one is a constant, of which kLayout says
// what the architecture calls the swizzle: what moves is 32 bits wide.
template <int kSlabColumns, uint32_t kLayout, int kGroupBytes = group_bytes(kSlabColumns)>
struct SlabDescriptor {
  static_assert(kSlabColumns == 64 || kSlabColumns == 32, "128- or 64-byte rows");
  static constexpr int kRowBytes = 2 * kSlabColumns;
  // From bit 0, which is the descriptor's 32, on: the stride dimension's offset, between groups.
  static constexpr uint32_t kHighWord = descriptor_units(kGroupBytes) | kLayout;

  // Low words. The contracted dimension runs along a row (Q, K).
  __device__ static uint32_t k_major(ptx::SmemAddr tile) { return low_word(tile, 16); }
  // The contracted dimension runs over rows (V); `slab_bytes` lie between two slabs.
  __device__ static uint32_t mn_major(ptx::SmemAddr tile, int slab_bytes) {
    return low_word(tile, slab_bytes);
  }

  // The descriptor with this low word, its start moved by `bytes`.
  __device__ static uint64_t descriptor_at(uint32_t low_word, int bytes = 0) {
    return static_cast<uint64_t>(kHighWord) << 32 | (low_word + descriptor_units(bytes));
  }

 private:
  __device__ static uint32_t low_word(ptx::SmemAddr tile, int leading_bytes) {
    constexpr uint32_t kAddressMask = 0x3ffff;  // bytes that its field of 14 bits holds, from bit 0
    constexpr int kLeadingOffset = 16;          // the lowest bit of the leading dimension's offset
    const int address = descriptor_units(tile.value & kAddressMask);
    return address | descriptor_units(leading_bytes) << kLeadingOffset;
  }
};

// What wgmma takes ("Matrix Descriptor Format", PTX ISA 9.7.15.5.1.2.2).
constexpr uint32_t wgmma_layout(int slab_columns) {
  constexpr int kSwizzle = 62 - 32;  // its lowest bit in the high word
  constexpr uint32_t k128Bytes = 1, k64Bytes = 2;
  return (slab_columns == 64 ? k128Bytes : k64Bytes) << kSwizzle;
}
template <int kSlabColumns, int kGroupBytes = group_bytes(kSlabColumns)>
using WgmmaDescriptor = SlabDescriptor<kSlabColumns, wgmma_layout(kSlabColumns), kGroupBytes>;

// What tcgen05.mma takes ("Shared memory descriptor", PTX ISA 9.7.16.4.1).
constexpr uint32_t umma_layout(int slab_columns) {
  constexpr int kVersion = 46 - 32, kSwizzle = 61 - 32;  // their lowest bits in the high word
  constexpr uint32_t kVersionOne = 1, k128Bytes = 2, k64Bytes = 4;
  return kVersionOne << kVersion | (slab_columns == 64 ? k128Bytes : k64Bytes) << kSwizzle;
}
template <int kSlabColumns>
using UmmaDescriptor = SlabDescriptor<kSlabColumns, umma_layout(kSlabColumns)>;

}  // namespace fa4
