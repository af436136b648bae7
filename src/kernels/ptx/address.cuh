// Typed addresses of the memory spaces.
#pragma once

#include "kernels/tile/integers.h"

namespace fa4::ptx {

// A byte address in the shared memory of this CTA.
struct SmemAddr {
  uint32_t value;
  __device__ SmemAddr operator+(uint32_t bytes) const { return {value + bytes}; }
};

__device__ inline SmemAddr smem_addr(const void* pointer) {
  return {static_cast<uint32_t>(__cvta_generic_to_shared(pointer))};
}

}  // namespace fa4::ptx
