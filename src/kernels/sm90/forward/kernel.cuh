// FlashAttention forward for Hopper: a scheduler warp, a loader warp (three where K and V lie in
// pages or are bytes), one to four consumer warpgroups.
//
// Shared memory (traits.h, smem_layout):
//   Q     q_slots x 64 rows, those of a consumer warpgroup; its rows of out take their place
//   K, V  kv_stages x tile_n rows each                      QTile x 2, barriers
//   bytes of blocks of K and V, raw_places x tile_n rows
//   ranks of sequences (length_ranks.h), of tiles of 64 rows
//   inbox of a cluster's parts (exchange_parts.cuh), where a launch has clusters
//
// Barriers (traits.h, barriers):
//
//   scheduler warp, loader warps               consumer warpgroups, 64 query rows each
//     scheduler ──── tile_full ───────────────▶  which tile               ── tile_empty ──▶
//        ▲  └───────────────────▶ loaders ── tile_empty ──▶
//        └──── tile_wanted ──────── loaders
//     TMA Q ──────── q_full[slot] ────────────▶  ... out by TMA store     ── q_empty ─────▶
//     TMA K block ── k_full[stage] ───────────▶  S = Q Kᵀ     (wgmma SS)  ── k_empty ─────▶
//     TMA V block ── v_full[stage] ───────────▶  O += P V     (wgmma RS)  ── v_empty ─────▶
//        └ v_raw ─▶ clears rows past the sequence's end, then v_full
//
// Of bytes:
//     TMA K, V ──── raw_full[place] ──▶ loaders: f16 of them ──── k_full, v_full[stage] ──▶
//        ◀───────── raw_empty ─────────────┘
//     Q of bf16 ─── q_full[slot] ─────▶ its consumers: f16 in its place (scale_rows.cuh)
//
// CTAs of a cluster that visit the same keys, a tile each, load a share of each block for all of
// them: k_full and v_full count the bytes of all shares, k_empty and v_empty the consumer warps of
// all CTAs.
//
// In a warpgroup Q Kᵀ of block n and P V of block n + 1 are issued together. Softcap, mask and the
// search for maxima, where n needs them, run under that P V; the exponentials wait for its end, and
// the other warpgroups' products run under them (ping-pong at the tensor cores). With two
// warpgroups and blocks of up to 128 keys ptxas moves the first exponentials before that wait. The
// epilogue of a tile runs under the first Q Kᵀ of the next, where Q has more slots than there are
// warpgroups. Independent warpgroups (traits.h) visit only the blocks that their own rows see, give
// the other stages back unread, and take no turns.
#pragma once

#include "kernels/forward/prefetch_maps.cuh"
#include "kernels/sm90/forward/consumer.cuh"
#include "kernels/sm90/forward/load_boxes.cuh"
#include "kernels/sm90/forward/load_bytes.cuh"
#include "kernels/sm90/forward/load_kv.cuh"
#include "kernels/sm90/forward/load_page_rows.cuh"
#include "kernels/sm90/forward/scheduler.cuh"
#include "kernels/tile/shared_base.cuh"

namespace fa4 {

template <sm90::FwdTraits T>
__global__ void __launch_bounds__(sm90::num_threads(T), 1)
    fwd_sm90(const __grid_constant__ FwdParams params) {
  static_assert(sm90::why_not(T) == nullptr);
  extern __shared__ unsigned char smem_base[];
  unsigned char* smem = aligned_shared_base(smem_base);
  const sm90::FwdContext<T> context{params, smem};
  if (threadIdx.x == 0) initialise_barriers(context.kBarriers, context.barrier(0));
  if (threadIdx.x == 32) prefetch_maps<T.pages>(params.maps);
  if (T.cluster > 1 || context.exchanges_parts()) {
    __syncwarp();
    ptx::barrier_cluster_arrive_release();
  }
  // The launch before is waited for by scheduler and loaders, where they first need what it wrote
  // (lengths in memory among it: wait_for_lengths); consumers come behind them. The first tile is
  // found meanwhile.
  __syncthreads();
  if constexpr (T.cluster > 1) ptx::barrier_cluster_wait();  // every CTA's barriers are there

  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroupThreads, 0);
  constexpr bool kMovesRegisters = sm90::consumer_warpgroups(T) > 1;
  if (warpgroup == 0) {
    if constexpr (kMovesRegisters) ptx::setmaxnreg_dec<sm90::register_split(T).producer>();
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (warp == 0) {
      release_second_launch(params.schedule);
      sm90::Scheduler<T>(context).run();
    } else if constexpr (T.bytes) {
      sm90::ByteLoader<T>(context, warp - 1).run();
    } else if constexpr (T.pages == Pages::kRows) {
      sm90::PageRowLoader<T>(context, warp - 1).run();
    } else if constexpr (T.pages != Pages::kNone) {
      sm90::BoxLoader<T>(context, warp - 1).run();
    } else if (warp == 1) {
      sm90::KvLoader<T>(context).run();
    }
    if constexpr (sm90::can_exchange_parts(T)) sm90::end_rows_of_cluster(context);
  } else {
    if constexpr (kMovesRegisters) ptx::setmaxnreg_inc<sm90::register_split(T).consumer>();
    if (context.exchanges_parts()) ptx::barrier_cluster_wait();  // every inbox's barrier is there
    sm90::Consumer<T>(context, warpgroup - 1).run();
  }
  if constexpr (T.cluster > 1) {  // no CTA ends while another may arrive at its barriers
    __syncwarp();
    ptx::barrier_cluster_arrive_release();
    ptx::barrier_cluster_wait();
  }
}

}  // namespace fa4
