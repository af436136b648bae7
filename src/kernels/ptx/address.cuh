// Typed addresses of the memory spaces.
#pragma once

#include "kernels/base/integers.h"

namespace fa4::ptx {

// A byte address in the shared memory of this CTA.
struct SmemAddr {
  uint32_t value;
  __device__ SmemAddr operator+(uint32_t bytes) const { return {value + bytes}; }
};

__device__ inline SmemAddr smem_addr(const void* pointer) {
  return {static_cast<uint32_t>(__cvta_generic_to_shared(pointer))};
}

// A place in tensor memory: the lane (a row of 0 to 127) in the upper half, the 32-bit column (0
// to 511) in the lower one.
struct TmemAddr {
  uint32_t value;
  __device__ TmemAddr operator+(int columns) const {
    return {value + static_cast<uint32_t>(columns)};
  }
};

}  // namespace fa4::ptx
