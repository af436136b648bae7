// Shared-memory matrix descriptors of tcgen05 ("Shared memory descriptor", PTX ISA 9.7.16.4.1) and
// of wgmma ("Matrix Descriptor Format", 9.7.15.5.1.2.2), and where an element then lies
// ("Canonical Layouts", 9.7.16.3.3).
#pragma once

#include <cstdint>

#include "emulator/machine/mma_formats.h"

namespace ptxemu {

// How a multiplicand of wgmma or tcgen05 lies in shared memory; a tensor map has modes and numbers
// of its own (TmaSwizzle).
enum class MatrixSwizzle : uint8_t { kNone, k128Atom32, k128, k64, k32 };

// A multiplicand in shared memory. Addresses are offsets in the memory of the CTA that reads it.
struct MatrixDescriptor {
  uint32_t start = 0;    // bytes
  uint32_t leading = 0;  // leading dimension byte offset
  uint32_t stride = 0;   // stride dimension byte offset
  MatrixSwizzle swizzle = MatrixSwizzle::kNone;
};

// Throw Trap{"matrix-descriptor"} for a set bit that means nothing or is not supported.
MatrixDescriptor decode_tcgen05_descriptor(uint64_t bits, const char* operand);
MatrixDescriptor decode_wgmma_descriptor(uint64_t bits, const char* operand);

// Whether rows or columns (M, N) are contiguous, or K is.
enum class Major : uint8_t { kK, kMN };

// Where the 16-byte chunk lies that holds element (mn, k) and its neighbours along the contiguous
// dimension; the element's own place in the chunk is (k or mn) % T, T elements a chunk.
inline uint32_t chunk_offset(const MatrixDescriptor& matrix, Major major, int elements_per_chunk,
                             uint32_t mn, uint32_t k) {
  const uint32_t t = static_cast<uint32_t>(elements_per_chunk);
  const uint32_t start = matrix.start, leading = matrix.leading, stride = matrix.stride;
  if (matrix.swizzle == MatrixSwizzle::k128Atom32) {  // MN-major only
    const uint32_t i = mn / t;
    const uint32_t offset =
        start + (i % 8) * 16 + (i / 8) * leading + (k % 4) * 128 + (k / 4) * stride;
    return offset ^ (((offset >> 7) & 3) << 5);
  }
  // 16-byte chunks in a row of the swizzle atom: 1, 2, 4 or 8.
  constexpr uint32_t kShift[] = {0, 3, 3, 2, 1};
  const uint32_t shift = kShift[static_cast<uint32_t>(matrix.swizzle)];
  const uint32_t chunks = 1u << shift, mask = chunks - 1;
  uint32_t offset;
  if (major == Major::kK) {
    const uint32_t column = chunks == 1 ? (k / t) * leading : (k / t) * 16;
    offset = start + (mn % 8) * 16 * chunks + (mn / 8) * stride + column;
  } else {
    const uint32_t i = mn / t;
    if (chunks == 1) return start + i * stride + (k % 8) * 16 + (k / 8) * leading;
    offset = start + (i % chunks) * 16 + (i / chunks) * leading + (k % 8) * 16 * chunks +
             (k / 8) * stride;
  }
  return offset ^ (((offset >> 7) & mask) << 4);
}

// Throws Trap{"matrix-descriptor"} when this layout cannot hold elements of `type`.
void check_layout(const MatrixDescriptor& matrix, Major major, ElementType type,
                  const char* operand);

}  // namespace ptxemu
