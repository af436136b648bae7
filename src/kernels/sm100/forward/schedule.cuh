// The scheduler warp: which tile comes next, and the blocks that its Q tiles visit.
#pragma once

#include "kernels/geometry/work_scheduler.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/sm100/common/launch_control.cuh"
#include "kernels/sm100/forward/context.cuh"

namespace fa4::sm100 {

template <FwdTraits T>
__device__ inline BlockRange block_range_of(const HeadParams& heads, const MaskParams& mask,
                                            const WorkTile& tile, int q_tile) {
  if (!has_rows<T>(heads, tile, q_tile)) return {};
  const BlockRange range = block_range_of_rows(
      heads, mask, tile, first_row_of_group<T>(tile, q_tile), T.cta_group * kTileRows, kTileN);
  return range.is_empty() ? BlockRange{} : range;
}

template <FwdTraits T>
class Scheduler {
 public:
  __device__ explicit Scheduler(const FwdContext<T>& context)
      : c(context), tiles(context.params, context.ranks()) {}

  __device__ void run() {
    release_second_launch(c.params.schedule);
    const Pipeline ring = c.pipeline(kTileFull);
    PipelineState<kTileSlots> slot;
    bool valid;
#pragma unroll 1
    do {
      ring.producer_acquire(slot);  // first: a tile is taken over when somebody is ready for it
      const WorkTile work = next();
      valid = work.batch >= 0;
      const bool writes = ptx::elect_sync();
      QTiles& tile = c.tile(slot.stage());
      if (writes) tile.work = work;
#pragma unroll 1
      for (int i = 0; i < T.q_tiles; ++i) {
        BlockRange blocks = block_range_of<T>(c.params.heads, c.params.mask, work, i);
        if constexpr (T.parts) {
          blocks = blocks_of_part(blocks, c.params.parts, work, kTileN);
        }
        if (writes) tile.blocks[i] = blocks;
      }
      // The launch before is waited for here, with the first tile found: the other roles touch no
      // global memory before they have a tile.
      wait_for_inputs(c.params.schedule);
      if (writes) ptx::mbarrier_arrive(ring.full_barrier(slot.stage()));
      __syncwarp();
      slot.advance();
    } while (valid);
    ptx::griddepcontrol_wait();  // the second of two launches ends behind the first
    ptx::griddepcontrol_launch_dependents();
  }

 private:
  __device__ WorkTile next() {
    if constexpr (T.parts) {
      return tiles.next();
    } else {
      return next_by_number();
    }
  }
  __device__ WorkTile next_by_number() {
    int32_t index;
    if (T.cta_group > 1 || c.params.schedule.order != TileOrder::kLaunchControl) {
      index = tiles.next_index();
    } else {
      index = is_first ? static_cast<int32_t>(blockIdx.x)
                       : launch_control.next(c.smem_address(c.kSmem.cancel), c.barrier(kCancelled));
      is_first = false;
    }
    return index < 0 ? WorkTile{.batch = -1} : tiles.tile_of(index);
  }

  const FwdContext<T>& c;
  RankingScheduler<WorkScheduler<tile_m(T), T.parts, T.cta_group>, T.parts, T.parts> tiles;
  bool is_first = true;
  LaunchControl launch_control;
  static_assert(LaunchControl::kResponseBytes == kCancelBytes);
};

}  // namespace fa4::sm100
