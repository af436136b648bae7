// Making rows of a tile in shared memory zero.
#pragma once

#include "kernels/base/element.h"
#include "kernels/ptx/sync.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// Rows [first, kRows) of a tile of kColumns in slabs of kSlab, by a warp, or by so many threads
// that then meet at a barrier of theirs; for the async proxy. Of V past a sequence's end, where
// anything may stand: a probability of 0 does not silence NaN.
template <int kRows, int kColumns, int kSlab = slab_columns(kColumns), int kThreads = 32>
__device__ inline void clear_rows(unsigned char* tile, int first) {
  constexpr int kRowBytes = kSlab * kElementBytes;
  constexpr int kPieces = kRowBytes / 16;
#pragma unroll 1
  for (int slab = 0; slab < kColumns / kSlab; ++slab) {
    unsigned char* rows = tile + slab * kRows * kRowBytes;
#pragma unroll 1
    for (int i = first * kPieces + threadIdx.x % kThreads; i < kRows * kPieces; i += kThreads) {
      *reinterpret_cast<uint4*>(rows + i * 16) = uint4{0, 0, 0, 0};
    }
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

}  // namespace fa4
