// FlashAttention forward over keys and values of bytes (e4m3), for Hopper and Blackwell: one loader
// warp or four, eight consumer warps, mma.sync.
//
//   loader warps                                   consumer warps: 16 rows, a share of each block
//     scheduler ───────────── tile_full ──────────▶  which tile            ── tile_empty ──▶
//     TMA Q ───────────────── q_full[stage] ──────▶  Q to registers        ── q_empty ─────▶
//     TMA K and V blocks,
//     cp.async of descales ── kv_full[stage] ─────▶  bytes to 16 bits in registers,
//                                                    S = Q Kᵀ, softmax, O += P V
//                                                                          ── kv_empty ────▶
//                                                    the warps' O, maxima and sums are put
//                                                    together through shared memory
//
// Bytes are read from shared memory once by each warp that multiplies them, and written there by
// nobody but the copy engine (docs/kernels/decode.md).
#pragma once

#include "kernels/forward/prefetch_maps.cuh"
#include "kernels/mma/forward/consumer.cuh"
#include "kernels/mma/forward/loader.cuh"
#include "kernels/ptx/sync.cuh"

namespace fa4 {

template <mma::FwdTraits T>
__global__ void __launch_bounds__(mma::num_threads(T), 1)
    fwd_e4m3(const __grid_constant__ FwdParams params) {
  static_assert(mma::why_not(T) == nullptr);
  extern __shared__ unsigned char smem_base[];
  // The offset goes through a shuffle, so that ptxas keeps the base instead of computing it again
  // in the loops.
  unsigned char* smem =
      smem_base + __shfl_sync(0xffffffffu, -ptx::smem_addr(smem_base).value & 1023u, 0);
  const mma::FwdContext<T> context{params, smem};
  if (threadIdx.x == 0) initialise_barriers(context.kBarriers, context.barrier(0));
  if (static_cast<int>(threadIdx.x) == 32 * mma::consumer_warps(T))
    prefetch_maps<T.pages>(params.maps);
  // The launch before is waited for by loaders, where they first need what it wrote (lengths
  // in memory among it: wait_for_lengths); consumers come behind them. The first tile is found
  // meanwhile.
  __syncthreads();

  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  if (warp < mma::consumer_warps(T)) {
    ptx::setmaxnreg_inc<mma::consumer_registers(T)>();
    mma::Consumer<T>(context, warp).run();
  } else {
    ptx::setmaxnreg_dec<mma::loader_registers(T)>();
    const int loader = warp - mma::consumer_warps(T);
    if (loader < mma::loader_warps(T)) mma::Loader<T>(context, loader).run();
  }
}

}  // namespace fa4
