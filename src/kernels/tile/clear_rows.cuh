// Making rows of a tile in shared memory zero.
#pragma once

#include "kernels/attention/element.h"
#include "kernels/ptx/sync.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// Rows [first, kRows) of a tile of kColumns, by one warp, for the async proxy. Of V past a
// sequence's end, where anything may stand: a probability of 0 does not silence NaN.
template <int kRows, int kColumns>
__device__ inline void clear_rows(unsigned char* tile, int first) {
  constexpr int kRowBytes = slab_columns(kColumns) * kElementBytes;
  constexpr int kPieces = kRowBytes / 16;
  const int pieces = (kRows - first) * kPieces;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < pieces * num_slabs(kColumns); i += 32) {
    const int slab = i / pieces, piece = i % pieces;
    *reinterpret_cast<uint4*>(tile + (slab * kRows + first) * kRowBytes + piece * 16) =
        uint4{0, 0, 0, 0};
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

}  // namespace fa4
