// What every role of the Blackwell forward kernel shares: addresses, barriers, the geometry of a
// tile.
#pragma once

#include "kernels/geometry/length_ranks.h"
#include "kernels/geometry/work_tile.cuh"
#include "kernels/sm100/common/cta_group.cuh"
#include "kernels/sm100/common/ring_state.cuh"
#include "kernels/sm100/common/tile_reader.cuh"
#include "kernels/sm100/forward/traits.h"
#include "kernels/tile/phases.h"
#include "kernels/tile/pipeline.cuh"

namespace fa4::sm100 {

// A work tile and the blocks of each Q tile of it, as it travels from the scheduler to the other
// roles.
struct QTiles {
  WorkTile work;
  BlockRange blocks[2];  // {} for one that sees no keys

  __device__ bool is_valid() const { return work.batch >= 0; }
  __device__ bool sees_keys(int q_tile) const { return !blocks[q_tile].is_empty(); }
};
static_assert(sizeof(QTiles) == kTileBytes);

// It goes through a shuffle, so that ptxas knows it to be the same in all lanes and keeps it.
__device__ inline int warp_of_warpgroup() {
  return __shfl_sync(0xffffffffu, threadIdx.x / kWarpThreads % 4, 0);
}

// Everything a role needs besides its tile.
template <FwdTraits T>
struct FwdContext {
  // These are constants because the compiler would inline what computes them at every call.
  static constexpr SmemLayout kSmem = smem_layout(T);
  static constexpr TmemLayout kTmem = tmem_layout(T);
  static constexpr auto kBarriers = offsets_of(barriers(T));
  static constexpr int kTileSlots = sm100::kTileSlots;
  using Tile = QTiles;

  const FwdParams& params;
  unsigned char* smem;
  CtaGroup<T.cta_group> group;

  __device__ void wait(int kind, int stage, uint32_t parity) const {
    group.wait(barrier(kind, stage), parity);
  }
  // One lane calls it, to arrive where the MMA thread waits: because of tensor memory, or of shared
  // memory too.
  __device__ void arrive_at_mma(int kind, int stage) const {
    group.arrive_at_leader(barrier(kind, stage));
  }
  __device__ void release_to_mma(int kind, int stage) const {
    group.release_to_leader(barrier(kind, stage));
  }
  __device__ void commit(int kind, int stage) const { group.commit(barrier(kind, stage)); }

  __device__ ptx::SmemAddr smem_address(int offset) const { return ptx::smem_addr(smem) + offset; }
  __device__ ptx::SmemAddr barrier(int kind, int stage = 0) const {
    return smem_address(kSmem.barriers + 8 * (kBarriers.first[kind] + stage));
  }
  // The ranks of sequences by length; only kernels of parts of keys have room for them.
  __device__ LengthRanks& ranks() const {
    return *reinterpret_cast<LengthRanks*>(smem + kSmem.ranks);
  }
  // Where a Q tile's out lies in shared memory, and a stage of the ring of K and V.
  __device__ static int out_place(int q_tile) {
    constexpr int kStride = out_offset(T, 1) - out_offset(T, 0);
    return kSmem.out + q_tile * kStride;
  }
  __device__ static int kv_place(int stage, bool holds_k) {
    if constexpr (is_uneven(T)) return kSmem.kv + kv_offset(T, stage, holds_k);
    constexpr int kStride = kv_offset(T, 1, true);
    return kSmem.kv + stage * kStride;
  }
  __device__ Pipeline pipeline(int full_kind) const {
    return {barrier(full_kind), barrier(full_kind + 1)};
  }
  __device__ Pipeline tile_ring() const { return pipeline(kTileFull); }
  __device__ QTiles& tile(int slot) const {
    return *reinterpret_cast<QTiles*>(smem + kSmem.tiles + slot * kTileBytes);
  }
  __device__ float& shift_or_sum(int q_tile, int row) const {
    return reinterpret_cast<float*>(smem + kSmem.factors)[q_tile * kTileRows + row];
  }
  __device__ float& maximum(int q_tile, int row) const {
    return reinterpret_cast<float*>(smem + kSmem.maxima)[q_tile * kTileRows + row];
  }
};

// Named barriers: 0 is __syncthreads. From a softmax warp to the correction warp of the same rows:
// the factors of O are written.
__device__ inline int factors_barrier(int q_tile, int warp) { return 1 + 4 * q_tile + warp; }

// The packed row (position and head of a group) at which a Q tile of the group of CTAs begins, and
// where this CTA's rows of it do.
template <FwdTraits T>
__device__ inline int first_row_of_group(const WorkTile& tile, int q_tile) {
  return tile.block * tile_m(T) + q_tile * T.cta_group * kTileRows;
}
template <FwdTraits T>
__device__ inline int first_row(const FwdContext<T>& c, const WorkTile& tile, int q_tile) {
  return first_row_of_group<T>(tile, q_tile) + static_cast<int>(c.group.rank) * kTileRows;
}

// Whether any CTA of the group has rows of the Q tile inside the sequence.
template <FwdTraits T>
__device__ inline bool has_rows(const HeadParams& heads, const WorkTile& tile, int q_tile) {
  return first_row_of_group<T>(tile, q_tile) < tile.seqlen_q << heads.group_log2;
}

template <FwdTraits T>
using KvRing = RingState<T.kv_stages>;

// The phases of a role that waits at so many barriers of each of these kinds.
template <FwdTraits T, int kStages, int... kKinds>
using PhasesOf = Phases<barriers(T).start_free(), kStages, kKinds...>;

// One Q tile of the next work tile.
template <FwdTraits T>
__device__ inline QTile next_q_tile(TileReader<FwdContext<T>>& tiles, int q_tile) {
  const QTiles& tile = tiles.wait();
  const QTile result{tile.work, tile.blocks[q_tile]};
  tiles.release();
  return result;
}

}  // namespace fa4::sm100
