// Where a kernel's dynamic shared memory begins.
#pragma once

#include "kernels/ptx/address.cuh"

namespace fa4 {

// `base`: an array that the kernel declares aligned to 1024 bytes, since it has no room to align
// it: shared memory begins where the system's 1024 bytes end. A system that takes another number of
// them is to be noticed, although the compiler believes the array's alignment: it does not follow
// the address through a shuffle. The offset goes through one too, so that ptxas keeps the base
// instead of computing it again in the loops.
__device__ inline unsigned char* checked_shared_base(unsigned char* base) {
  if ((__shfl_sync(0xffffffffu, ptx::smem_addr(base).value, 0) & 1023u) != 0) __trap();
  return base + __shfl_sync(0xffffffffu, -ptx::smem_addr(base).value & 1023u, 0);
}

}  // namespace fa4
