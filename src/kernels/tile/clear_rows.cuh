// Making rows of a tile in shared memory zero.
#pragma once

#include "kernels/base/element.h"
#include "kernels/ptx/sync.cuh"
#include "kernels/tile/slab.h"

namespace fa4 {

// Zeros rows [first, kRows) of a tile of kColumns columns in slabs of kSlab. A warp calls it, or
// kThreads threads that meet at a barrier of theirs afterwards; the async proxy's fence is inside.
// For V past a sequence's end, where anything may stand: a probability of 0 does not silence NaN.
template <int kRows, int kColumns, int kSlab = slab_columns(kColumns), int kThreads = 32,
          TileLayout kLayout = slab_by_slab(kRows, kSlab)>
__device__ inline void clear_rows(unsigned char* tile, int first) {
  constexpr int kRowBytes = kSlab * kElementBytes;
  constexpr int kPieces = kRowBytes / 16, kGroupPieces = kGroupRows * kPieces;
#pragma unroll 1
  for (int slab = 0; slab < kColumns / kSlab; ++slab) {
    unsigned char* rows = tile + slab * kLayout.slab_bytes;
#pragma unroll 1
    for (int i = first * kPieces + threadIdx.x % kThreads; i < kRows * kPieces; i += kThreads) {
      const int group = i / kGroupPieces * (kLayout.group_bytes - group_bytes(kSlab));
      *reinterpret_cast<uint4*>(rows + group + i * 16) = uint4{0, 0, 0, 0};
    }
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

}  // namespace fa4
