// Shared-memory matrix descriptors of tcgen05 ("Shared memory descriptor", PTX ISA 9.7.16.4.1) and
// of wgmma ("Matrix Descriptor Format", 9.7.15.5.1.2.2), and where an element then lies
// ("Canonical Layouts", 9.7.16.3.3).
#pragma once

#include <cstdint>

#include "emulator/machine/mma_formats.h"

namespace ptxemu {

enum class Swizzle : uint8_t { kNone, k128Atom32, k128, k64, k32 };

// A multiplicand in shared memory. Addresses are offsets in the memory of the CTA that reads it.
struct MatrixDescriptor {
  uint32_t start = 0;    // bytes
  uint32_t leading = 0;  // leading dimension byte offset
  uint32_t stride = 0;   // stride dimension byte offset
  Swizzle swizzle = Swizzle::kNone;
};

// Throw Trap{"matrix-descriptor"} for a set bit that means nothing or is not supported.
MatrixDescriptor decode_tcgen05_descriptor(uint64_t bits, const char* operand);
MatrixDescriptor decode_wgmma_descriptor(uint64_t bits, const char* operand);

// Whether rows or columns (M, N) are contiguous, or K is.
enum class Major : uint8_t { kK, kMN };

// Where the 16-byte chunk lies that holds element (mn, k) and its neighbours along the contiguous
// dimension; the element's own place in the chunk is (k or mn) % T, T elements a chunk.
uint32_t chunk_offset(const MatrixDescriptor& matrix, Major major, int elements_per_chunk,
                      uint32_t mn, uint32_t k);

// Throws Trap{"matrix-descriptor"} when this layout cannot hold elements of `type`.
void check_layout(const MatrixDescriptor& matrix, Major major, ElementType type,
                  const char* operand);

}  // namespace ptxemu
