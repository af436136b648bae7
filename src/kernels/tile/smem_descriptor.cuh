// Descriptors of matrix operands in shared memory, for the layouts that TMA writes (tile/slab.h).
#pragma once

#include "kernels/ptx/address.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// Slabs of kSlabColumns 16-bit columns, swizzled over groups of 8 rows that lie kGroupBytes apart.
// Fields are in units of 16 bytes. The low word holds the address, the high one is a constant, of
// which kLayout says what the architecture calls the swizzle: what moves is 32 bits wide.
template <int kSlabColumns, uint32_t kLayout, int kGroupBytes = group_bytes(kSlabColumns)>
struct SlabDescriptor {
  static_assert(kSlabColumns == 64 || kSlabColumns == 32, "128- or 64-byte rows");
  static constexpr int kRowBytes = 2 * kSlabColumns;
  static constexpr uint32_t kHighWord = (kGroupBytes >> 4) | kLayout;

  // Low words. The contracted dimension runs along a row (Q, K).
  __device__ static uint32_t k_major(ptx::SmemAddr tile) { return low_word(tile, 16); }
  // The contracted dimension runs over rows (V); `slab_bytes` lie between two slabs.
  __device__ static uint32_t mn_major(ptx::SmemAddr tile, int slab_bytes) {
    return low_word(tile, slab_bytes);
  }

  // The descriptor with this low word, its start moved by `bytes`.
  __device__ static uint64_t descriptor_at(uint32_t low_word, int bytes = 0) {
    return static_cast<uint64_t>(kHighWord) << 32 | (low_word + (bytes >> 4));
  }

 private:
  __device__ static uint32_t low_word(ptx::SmemAddr tile, int leading_bytes) {
    return (tile.value & 0x3ffff) >> 4 | (leading_bytes >> 4) << 16;
  }
};

// What wgmma takes (PTX ISA, "Matrix Descriptor Format").
template <int kSlabColumns, int kGroupBytes = group_bytes(kSlabColumns)>
using WgmmaDescriptor =
    SlabDescriptor<kSlabColumns, (kSlabColumns == 64 ? 1u : 2u) << 30, kGroupBytes>;

// What tcgen05.mma takes (PTX ISA, "Shared memory descriptor"): version 1 and the swizzle.
template <int kSlabColumns>
using UmmaDescriptor =
    SlabDescriptor<kSlabColumns, 1u << 14 | (kSlabColumns == 64 ? 2u : 4u) << 29>;

}  // namespace fa4
