// What every role of the kernel for bytes shares: addresses, barriers, the geometry of a tile.
#pragma once

#include "kernels/forward/params.h"
#include "kernels/geometry/work_scheduler.cuh"
#include "kernels/mma/forward/traits.h"
#include "kernels/tile/pipeline.cuh"

namespace fa4::mma {

// A tile travels from the loader to the consumers.
static_assert(sizeof(QTile) == kTileBytes);

// Everything a role needs besides its tile.
template <FwdTraits T>
struct FwdContext {
  static constexpr SmemLayout kSmem = smem_layout(T);
  static constexpr auto kBarriers = offsets_of(barriers(T));

  const FwdParams& params;
  unsigned char* smem;

  __device__ ptx::SmemAddr smem_address(int offset) const { return ptx::smem_addr(smem) + offset; }
  __device__ ptx::SmemAddr barrier(int kind) const {
    return smem_address(kSmem.barriers + 8 * kBarriers.first[kind]);
  }
  __device__ Pipeline pipeline(int full_kind) const {
    return {barrier(full_kind), barrier(full_kind + 1)};
  }
  // The ring of those whose turn it is; its stages are those from turn * ring_stages(T) on.
  __device__ Pipeline ring(int turn) const {
    const int first = 8 * turn * ring_stages(T);
    return {barrier(kKvFull) + first, barrier(kKvEmpty) + first};
  }
  __device__ QTile& tile(int slot) const {
    return *reinterpret_cast<QTile*>(smem + kSmem.tiles + slot * kTileBytes);
  }
  // The ranks of sequences by length; only kernels that can rank have room for them.
  __device__ LengthRanks& ranks() const {
    return *reinterpret_cast<LengthRanks*>(smem + kSmem.ranks);
  }
  __device__ float* descales_of_keys(int stage) const {
    return reinterpret_cast<float*>(smem + kSmem.descales + stage * 2 * kDescaleBytes);
  }
};

// Named barriers: 0 is __syncthreads.
enum NamedBarrier { kMerge = 1, kRanked = 2 };

// Each loader counts by itself, so that all of them have the same work without telling one another;
// ranks, where there are some, are the first one's.
template <FwdTraits T>
using Scheduler =
    RankingScheduler<WorkScheduler<tile_m(T), T.parts>, T.parts, can_rank(T), loader_warps(T)>;

}  // namespace fa4::mma
