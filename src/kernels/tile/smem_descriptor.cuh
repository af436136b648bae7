// Matrix descriptors of wgmma operands in shared memory, for the layouts that TMA writes.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4 {

// Slabs of kSlabColumns 16-bit columns: rows of 2 kSlabColumns bytes, swizzled over groups of 8
// rows (PTX ISA, "Matrix Descriptor Format" of wgmma). Fields are in units of 16 bytes.
template <int kSlabColumns>
struct SmemDescriptor {
  static_assert(kSlabColumns == 64 || kSlabColumns == 32, "128- or 64-byte rows");
  static constexpr uint64_t kSwizzle = kSlabColumns == 64 ? 1 : 2;
  static constexpr int kEightRows = 8 * 2 * kSlabColumns;

  // The contracted dimension runs along a row (Q, K).
  __device__ static uint64_t k_major(ptx::SmemAddr tile) { return make(tile, 16); }
  // The contracted dimension runs over rows (V); `slab_bytes` lie between two slabs.
  __device__ static uint64_t mn_major(ptx::SmemAddr tile, int slab_bytes) {
    return make(tile, slab_bytes);
  }

  // Added to a descriptor to move its start.
  __device__ static constexpr uint64_t offset(int bytes) {
    return static_cast<uint64_t>(bytes >> 4);
  }

 private:
  __device__ static uint64_t make(ptx::SmemAddr tile, int leading_bytes) {
    return static_cast<uint64_t>((tile.value & 0x3ffff) >> 4) |
           static_cast<uint64_t>(leading_bytes >> 4) << 16 |
           static_cast<uint64_t>(kEightRows >> 4) << 32 | kSwizzle << 62;
  }
};

}  // namespace fa4
