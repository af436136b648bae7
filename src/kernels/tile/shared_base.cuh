// Where a kernel's dynamic shared memory begins: at a multiple of 1024 bytes, as swizzled tiles do.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4 {

// The first one inside `base`, for which the layout has 1024 bytes to spare. The offset goes
// through a shuffle, so that ptxas keeps the base instead of computing it again in the loops.
__device__ inline unsigned char* aligned_shared_base(unsigned char* base) {
  return base + __shfl_sync(0xffffffffu, -ptx::smem_addr(base).value & 1023u, 0);
}

// `base`: an array that the kernel declares aligned to 1024 bytes, since it has no room to align
// it: shared memory begins where the system's 1024 bytes end. A system that takes another number of
// them is to be noticed, although the compiler believes the array's alignment: it does not follow
// the address through a shuffle.
__device__ inline unsigned char* checked_shared_base(unsigned char* base) {
  if ((__shfl_sync(0xffffffffu, ptx::smem_addr(base).value, 0) & 1023u) != 0) __trap();
  return aligned_shared_base(base);
}

}  // namespace fa4
