// Q of bf16 made f16 in its place, where keys are bytes.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/forward/context.cuh"
#include "kernels/softmax/fragment_softmax.cuh"
#include "kernels/tile/f16_of_bf16.cuh"

namespace fa4::sm90 {

// Makes the 64 rows of a warpgroup f16. All its threads call it and meet at a barrier of theirs,
// behind a proxy fence, since wgmma reads the rows. A quad takes the two rows whose scores it has,
// a lane a quarter of their 16-byte pieces; of neighbouring rows different ones at a time, so that
// no eight lanes meet in a bank. Returns the powers of two that the rows' scores are in units of.
template <int kHeadDim>
__device__ inline RowPair scale_rows_to_f16(unsigned char* rows, int warpgroup) {
  constexpr int kSlab = slab_columns(kHeadDim), kRowBytes = kSlab * kElementBytes;
  constexpr int kOfSlab = kRowBytes / 16, kPieces = num_slabs(kHeadDim) * kOfSlab / 4;
  static_assert(kOfSlab == 8);
  const int lane = threadIdx.x % kWarpgroupThreads;
  const int first = fragment_row(0, lane, 0), swizzle = slab_swizzle<kSlab>(first);
  const auto at = [&](int r, int i) {
    const int piece = 4 * ((i ^ first) & 1) + lane % 4;
    const int row = i / 2 * kWarpgroupRows + first + 8 * r;
    return reinterpret_cast<uint4*>(rows + row * kRowBytes + 16 * (piece ^ swizzle));
  };
  uint4 pieces[2][kPieces];
  F16Rows both;
  F16Row found[2];
#pragma unroll
  for (int i = 0; i < 2 * kPieces; ++i) {
    const uint4 p = pieces[i % 2][i / 2] = *at(i % 2, i / 2);
    for (uint32_t pair : {p.x, p.y, p.z, p.w}) both.look_at(i % 2, pair);
  }
  both.find(found);
#pragma unroll
  for (int i = 0; i < 2 * kPieces; ++i) {
    const F16Row& row = found[i % 2];
    const uint4 p = pieces[i % 2][i / 2];
    *at(i % 2, i / 2) = {row.of(p.x), row.of(p.y), row.of(p.z), row.of(p.w)};
  }
  ptx::fence_proxy_async_shared();
  ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);
  return {{found[0].unit, found[1].unit}};
}

}  // namespace fa4::sm90
