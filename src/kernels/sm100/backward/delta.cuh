// The delta warp: delta of each step's rows as three numbers of 16 bits, for the tensor core to
// take it off dP. In f32 it would be loaded by every thread that has a key: most of what shared
// memory moves for registers.
#pragma once

#include "kernels/sm100/backward/context.cuh"
#include "kernels/tile/pack.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4::sm100::bwd {

template <BwdTraits T>
class DeltaSplitter {
 public:
  __device__ explicit DeltaSplitter(const Context<T>& context)
      : c(context), lane(threadIdx.x % kWarpThreads) {}

  __device__ void run() {
    int steps = c.work().steps;
    if (steps == 0) return;
    write_constants();
#pragma unroll 1
    for (; steps > 0; --steps) {
      float delta[kRowsOfLane];
      c.wait(kStatsFull, stats.stage(), stats.phase());
#pragma unroll
      for (int i = 0; i < kRowsOfLane; ++i) delta[i] = given()[lane + i * kWarpThreads];
      c.arrive(kStatsEmpty, stats.stage());
      stats.advance();
      phases.wait(c, kDeltaEmpty);
#pragma unroll
      for (int i = 0; i < kRowsOfLane; ++i) {
        pieces(c.kSmem.delta)[lane + i * kWarpThreads] = split(delta[i]);
      }
      ptx::fence_proxy_async_shared();
      c.release_to_mma(kDeltaFull);
    }
  }

 private:
  static constexpr int kRowsOfLane = q_rows(T) / kWarpThreads;

  __device__ uint4* pieces(int place) const { return reinterpret_cast<uint4*>(c.smem + place); }
  // Of this CTA's rows of the block.
  __device__ const float* given() const {
    const int place = c.kSmem.stats + (2 * stats.stage() + 1) * kStatBytes;
    return reinterpret_cast<const float*>(c.smem + place) + c.group.rank * q_rows(T);
  }

  // A row of the first operand is -1, -1, -1 and zeros, of the second one three parts of delta and
  // zeros: the first eight columns of all rows, then the others.
  __device__ void write_constants() const {
    constexpr uint32_t kMinusOne = 0xbf80;
    for (int i = lane; i < kKeys; i += kWarpThreads) {
      pieces(c.kSmem.minus_ones)[i] = uint4{kMinusOne << 16 | kMinusOne, kMinusOne, 0, 0};
      pieces(c.kSmem.minus_ones)[kKeys + i] = uint4{0, 0, 0, 0};
    }
    for (int i = lane; i < q_rows(T); i += kWarpThreads) {
      pieces(c.kSmem.delta)[q_rows(T) + i] = uint4{0, 0, 0, 0};
    }
  }

  // bf16 has 8 bits of a float's 24. What is not finite has no rest.
  __device__ static uint4 split(float delta) {
    constexpr Element kPart = Element::kBF16;
    const float high = unpack_lower<kPart>(pack<kPart>(delta, 0.0f));
    const float rest = fabsf(high) < kInfinity ? delta - high : 0.0f;
    const float middle = unpack_lower<kPart>(pack<kPart>(rest, 0.0f));
    return {pack<kPart>(high, middle), pack<kPart>(rest - middle, 0.0f), 0, 0};
  }

  const Context<T>& c;
  const int lane;
  PipelineState<kStatStages> stats;
  PhasesOf<T, kDeltaEmpty> phases;
};

}  // namespace fa4::sm100::bwd
