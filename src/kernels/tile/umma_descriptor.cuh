// Descriptors of tcgen05.mma: an operand in shared memory, and the instruction's shape.
#pragma once

#include "kernels/attention/element.h"
#include "kernels/ptx/address.cuh"

namespace fa4 {

// Slabs of kSlabColumns 16-bit columns as TMA writes them: rows of 2 kSlabColumns bytes, swizzled
// over groups of 8 rows (PTX ISA, "Shared memory descriptor" of tcgen05). Fields are in units of 16
// bytes. The low word holds the address, the high one is a constant: what moves is 32 bits wide.
template <int kSlabColumns>
struct UmmaDescriptor {
  static_assert(kSlabColumns == 64 || kSlabColumns == 32, "128- or 64-byte rows");
  static constexpr int kRowBytes = 2 * kSlabColumns;
  static constexpr uint32_t kVersion = 1;
  static constexpr uint32_t kSwizzle = kSlabColumns == 64 ? 2 : 4;
  static constexpr uint32_t kHighWord = (8 * kRowBytes >> 4) | kVersion << 14 | kSwizzle << 29;

  // Low words. The contracted dimension runs along a row (Q, K).
  __device__ static uint32_t k_major(ptx::SmemAddr tile) { return low_word(tile, 16); }
  // The contracted dimension runs over rows (V); `slab_bytes` lie between two slabs.
  __device__ static uint32_t mn_major(ptx::SmemAddr tile, int slab_bytes) {
    return low_word(tile, slab_bytes);
  }

  // The descriptor with this low word, its start moved by `bytes`.
  __device__ static uint64_t at(uint32_t low_word, int bytes = 0) {
    return static_cast<uint64_t>(kHighWord) << 32 | (low_word + (bytes >> 4));
  }

 private:
  __device__ static uint32_t low_word(ptx::SmemAddr tile, int leading_bytes) {
    return (tile.value & 0x3ffff) >> 4 | (leading_bytes >> 4) << 16;
  }
};

// D (m x n, f32) from A (m x 16) and B (16 x n) of 16 bits (PTX ISA, "Instruction descriptor",
// .kind::f16). B's contracted dimension runs over rows when `b_mn_major`.
constexpr uint32_t umma_instruction(Element element, int m, int n, bool b_mn_major) {
  const uint32_t type = element == Element::kBF16 ? 1 : 0;
  constexpr uint32_t kF32 = 1;
  return kF32 << 4 | type << 7 | type << 10 | static_cast<uint32_t>(b_mn_major) << 16 |
         static_cast<uint32_t>(n >> 3) << 17 | static_cast<uint32_t>(m >> 4) << 24;
}

}  // namespace fa4
