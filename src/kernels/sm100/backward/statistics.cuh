// The statistics warp: lse and delta of each step's rows as three numbers of 16 bits each, for the
// tensor core to take them off S and dP. In f32 they would be loaded by every thread that has a
// key: most of what shared memory moves for registers.
#pragma once

#include "kernels/sm100/backward/context.cuh"
#include "kernels/tile/bf16_terms.cuh"

namespace fa4::sm100::bwd {

template <BwdTraits T, WorkKind kKind>
class StatisticSplitter {
 public:
  __device__ explicit StatisticSplitter(const Context<T, kKind>& context)
      : c(context), lane(threadIdx.x % kWarpThreads) {}

  // The terms of a block are read by the last step of S and of dP: when that is done, the next
  // block's take their place.
  __device__ void run() {
    const int steps = c.work().steps;
    if (steps == 0) return;
    write_constants();
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      float lse[kRowsOfLane], delta[kRowsOfLane];
      c.wait(kStatsFull, stats.stage(), stats.phase());
      read(lse, 0);
      read(delta, 1);
      c.arrive(kStatsEmpty, stats.stage());
      stats.advance();
      if constexpr (takes_lse_off(T)) {
#pragma unroll
        for (int r = 0; r < kRowsOfLane; ++r) lse[r] *= c.params.neg_lse_log2_to_score;
        if (i > 0) phases.wait(c, kSFull);
        hand_over(lse, c.kSmem.lse, kLseFull);
      }
      if constexpr (kKind == WorkKind::kDv) continue;
      if (i > 0) phases.wait(c, kDpFull);
      hand_over(delta, c.kSmem.delta, kDeltaFull);
    }
  }

 private:
  static constexpr int kRowsOfLane = q_rows(T) / kWarpThreads;
  using Rows = float[kRowsOfLane];

  // One statistic of this CTA's rows of the block.
  __device__ void read(Rows& r, int statistic) const {
    const int place = c.kSmem.stats + (2 * stats.stage() + statistic) * stat_bytes(T);
    const auto* from = reinterpret_cast<const float*>(c.smem + place) + c.group.rank * q_rows(T);
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) r[i] = from[lane + i * kWarpThreads];
  }

  __device__ uint4* pieces(int place) const { return reinterpret_cast<uint4*>(c.smem + place); }

  __device__ void hand_over(const Rows& r, int to, int kind) const {
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) pieces(to)[lane + i * kWarpThreads] = split(r[i]);
    ptx::fence_proxy_async_shared();
    c.release_to_mma(kind);
  }

  // A row of the first operand is -1, -1, -1 and zeros, of the second one three terms and zeros:
  // the first eight columns of all rows, then the others.
  __device__ void write_constants() const {
    constexpr uint32_t kMinusOne = 0xbf80;
    for (int i = lane; i < kKeys; i += kWarpThreads) {
      pieces(c.kSmem.minus_ones)[i] = uint4{kMinusOne << 16 | kMinusOne, kMinusOne, 0, 0};
      pieces(c.kSmem.minus_ones)[kKeys + i] = uint4{0, 0, 0, 0};
    }
    for (int i = lane; i < q_rows(T); i += kWarpThreads) {
      pieces(c.kSmem.delta)[q_rows(T) + i] = uint4{0, 0, 0, 0};
      if (takes_lse_off(T)) pieces(c.kSmem.lse)[q_rows(T) + i] = uint4{0, 0, 0, 0};
    }
  }

  __device__ static uint4 split(float x) {
    constexpr Element kTermType = Element::kBF16;
    float terms[3];
    split_in_terms(x, terms);
    return {pack<kTermType>(terms[0], terms[1]), pack<kTermType>(terms[2], 0.0f), 0, 0};
  }

  const Context<T, kKind>& c;
  const int lane;
  PipelineState<kStatStages> stats;
  PhasesOf<T, kSFull, kDpFull> phases;
};

}  // namespace fa4::sm100::bwd
