// The scheduler warp: which tile comes next, the blocks that it visits, and its Q.
#pragma once

#include "kernels/output/rows.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/forward/context.cuh"

namespace fa4::sm90 {

template <FwdTraits T>
class Scheduler {
 public:
  __device__ explicit Scheduler(const FwdContext<T>& context)
      : c(context), tiles(context.params, context.ranks()) {}

  __device__ void run() {
#pragma unroll 1
    for (;;) {
      // A tile is taken when the loaders want it, not before: until then another CTA may.
      wait(c.barrier(kTileWanted), wanted.phase() ^ 1);
      wanted.advance();
      WorkTile work = tiles.next();
      if constexpr (T.cluster > 1) work.block = work.block * T.cluster + c.rank();
      hand_out(work);
      if (work.batch < 0) break;
      ptx::griddepcontrol_wait();
      load_q(work);
    }
    ptx::griddepcontrol_wait();               // where there was no tile
    ptx::griddepcontrol_launch_dependents();  // none is left to be begun
  }

 private:
  __device__ void hand_out(const WorkTile& work) {
    QTile tile{work, {}};
    if (tile.is_valid()) tile.blocks = block_range_of<T>(c.params, work);
    const Pipeline ring = c.pipeline(kTileFull);
    ring.producer_acquire(slot);
    if (ptx::elect_sync()) {
      c.tile(slot.stage()) = tile;
      ptx::mbarrier_arrive(ring.full_barrier(slot.stage()));
    }
    __syncwarp();
    slot.advance();
  }

  // A tile that sees no keys still has its Q, whose place out takes.
  __device__ void load_q(const WorkTile& work) {
    constexpr int kSlab = slab_columns(T.head_dim);
    const FwdParams& p = c.params;
    const Pipeline ring = c.pipeline(kQFull);
    ring.producer_acquire(q);
    if (ptx::elect_sync()) {
      const ptx::SmemAddr barrier = ring.full_barrier(q.stage());
      const ptx::SmemAddr to = c.smem_address(c.kSmem.q + q.stage() * q_bytes(T));
      ptx::mbarrier_arrive_expect_tx(barrier, q_bytes(T));
#pragma unroll
      for (int i = 0; i < consumer_warpgroups(T) * num_slabs(T.head_dim); ++i) {
        const int warpgroup = i / num_slabs(T.head_dim), slab = i % num_slabs(T.head_dim);
        const int row = packed_row_of<T>(work, 64 * warpgroup);
        ptx::cp_async_bulk_tensor_5d_load(
            to + i * 64 * kSlab * kElementBytes, &p.maps.q, barrier, slab * kSlab,
            head_of_group(p.heads, row), work.head, work.offset_q + (row >> p.heads.group_log2),
            batch_coordinate(p.sequences.cu_seqlens_q, work), ptx::createpolicy_evict_first());
      }
    }
    __syncwarp();
    q.advance();
  }

  const FwdContext<T>& c;
  RankingScheduler<WorkScheduler<T.tile_m * T.cluster, T.parts, T.cluster, can_exchange_parts(T)>,
                   T.parts, reads_keys_once(T)>
      tiles;
  PipelineState<1> wanted;
  PipelineState<kTileSlots> slot;
  PipelineState<T.q_stages> q;
};

}  // namespace fa4::sm90
