// The scheduler warp: which tile comes next, the blocks that it visits, and its Q.
#pragma once

#include "kernels/geometry/work_scheduler.cuh"
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
      wait_for_inputs(c.params.schedule);
      load_q(work);
    }
    // A CTA without a tile has not waited yet. And the second of two launches must end behind the
    // first, so that whoever waits for the second has waited for both.
    ptx::griddepcontrol_wait();
    if (!ends_first()) ptx::griddepcontrol_launch_dependents();  // none is left to be begun
  }

 private:
  // Whether the launch behind this one is to begin when this CTA has ended, not before. In a row of
  // launches that leave SMs idle each would begin on those, and each waits longer for its keys than
  // one that finds the GPU empty (docs/kernels/decode_measured.md, "Calls in a row"): by more than
  // a launch takes to begin, where a CTA has many.
  __device__ bool ends_first() const {
    constexpr int kManyKeys = 1024;
    return reads_keys_once(T) && c.params.schedule.leaves_sms != 0 &&
           most_blocks * T.tile_n >= kManyKeys;
  }

  __device__ void hand_out(const WorkTile& work) {
    QTile tile{work, {}};
    if (tile.is_valid()) tile.blocks = blocks_of_tile<T.tile_m, T.tile_n, T.parts>(c.params, work);
    most_blocks = max(most_blocks, tile.blocks.n_block_max - tile.blocks.n_block_min);
    const Pipeline ring = c.pipeline(kTileFull);
    ring.producer_acquire(slot);
    if constexpr (T.independent) hand_out_slices(tile);
    if (ptx::elect_sync()) {
      c.tile(slot.stage()) = tile;
      ptx::mbarrier_arrive(ring.full_barrier(slot.stage()));
    }
    __syncwarp();
    slot.advance();
  }

  // The blocks of each 64 rows: a lane for each.
  __device__ void hand_out_slices(const QTile& tile) {
    const int slice = threadIdx.x % 32;
    if (slice < consumer_warpgroups(T)) {
      c.blocks_of_slice(slot.stage(), slice) = blocks_of_slice(tile, slice);
    }
    __syncwarp();
  }
  // Those of the tile's blocks that the slice's rows see, and at least one of them: the consumers'
  // loop has no case for none. Of a tile without keys the one that the loaders pretend.
  __device__ BlockRange blocks_of_slice(const QTile& tile, int slice) const {
    if (!tile.sees_keys()) return tile.blocks;
    const int first = packed_row_of(tile.work, T.tile_m, kWarpgroupRows * slice);
    BlockRange own = block_range_of_rows(c.params.heads, c.params.mask, tile.work, first,
                                         kWarpgroupRows, T.tile_n);
    const bool has_rows = first < tile.work.seqlen_q << c.params.heads.group_log2;
    const int least = tile.blocks.n_block_min, most = tile.blocks.n_block_max;
    own.n_block_min = min(max(own.n_block_min, least), most - 1);
    own.n_block_max = has_rows ? min(own.n_block_max, most) : 0;
    own.n_block_max = max(own.n_block_max, own.n_block_min + 1);
    return own;
  }

  // A tile that sees no keys still has its Q, whose place out takes.
  __device__ void load_q(const WorkTile& work) {
    if constexpr (late_warpgroups(T) > 0) prefetch_q(work);
    const Pipeline ring = c.pipeline(kQFull);
#pragma unroll
    for (int warpgroup = 0; warpgroup < consumer_warpgroups(T); ++warpgroup) {
      const ptx::SmemAddr barrier = ring.full_barrier(q.stage());
      const ptx::SmemAddr to = c.smem_address(c.kSmem.q + q.stage() * q_slot_bytes(T));
      const QBox box = q_box(work, slice_of(T, warpgroup, slot.count - 1));
      ring.producer_acquire(q);
      if (ptx::elect_sync()) {
        ptx::mbarrier_arrive_expect_tx(barrier, q_slot_bytes(T));
#pragma unroll
        for (int slab = 0; slab < num_slabs(T.head_dim); ++slab) {
          ptx::cp_async_bulk_tensor_5d_load(to + slab * kWarpgroupRows * kSlab * kElementBytes,
                                            &c.params.maps.q, barrier, slab * kSlab,
                                            box.head_of_group, box.head, box.position, box.batch,
                                            ptx::createpolicy_evict_first());
        }
      }
      __syncwarp();
      q.advance();
    }
  }

  // Brings the rows of Q whose slots are still taken into the L2 cache: their loads are short then.
  __device__ void prefetch_q(const WorkTile& work) const {
    if (ptx::elect_sync()) {
#pragma unroll
      for (int i = 0; i < late_warpgroups(T) * num_slabs(T.head_dim); ++i) {
        const QBox box = q_box(work, consumer_warpgroups(T) - 1 - i / num_slabs(T.head_dim));
        ptx::cp_async_bulk_prefetch_tensor_5d(&c.params.maps.q, i % num_slabs(T.head_dim) * kSlab,
                                              box.head_of_group, box.head, box.position, box.batch);
      }
    }
    __syncwarp();
  }

  // Where TMA finds a warpgroup's rows of Q.
  struct QBox {
    int head_of_group, head, position, batch;
  };
  __device__ QBox q_box(const WorkTile& work, int warpgroup) const {
    const HeadParams& heads = c.params.heads;
    const int row = packed_row_of(work, T.tile_m, kWarpgroupRows * warpgroup);
    return {head_of_group(heads, row), work.head, work.offset_q + (row >> heads.group_log2),
            batch_coordinate(c.params.sequences.cu_seqlens_q, work)};
  }

  static constexpr int kSlab = slab_columns(T.head_dim);
  const FwdContext<T>& c;
  RankingScheduler<WorkScheduler<T.tile_m * T.cluster, T.parts, T.cluster, can_exchange_parts(T)>,
                   T.parts, reads_keys_once(T)>
      tiles;
  int most_blocks = 0;  // of a tile
  PipelineState<1> wanted;
  PipelineState<kTileSlots> slot;
  PipelineState<T.q_slots> q;
};

}  // namespace fa4::sm90
