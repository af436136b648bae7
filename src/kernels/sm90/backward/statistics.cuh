// lse and delta by the tensor cores: Sᵀ begins as -lse / scale of its columns' rows and dPᵀ as
// -delta, products of one step whose second operand the preprocess has written (StatisticTerms).
// Of 64 queries such steps take 128 clocks of shared memory (96 where a step has 128 queries).
// Where eight warps load both in f32 for the columns of their threads, 16 bytes a lane, it is 256:
// four clocks a load, as long as 512 bytes (docs/kernels/hopper_rates.md).
#pragma once

#include "kernels/ptx/wgmma_backward.cuh"
#include "kernels/sm90/backward/context.cuh"

namespace fa4::sm90::bwd {

enum class Statistic { kLse, kDelta };

template <BwdTraits T>
class StatisticProduct {
 public:
  __device__ explicit StatisticProduct(const Context<T>& context) : c(context) {}

  // The first operand's rows are all alike, so that eight stand for any number: nonzero where a
  // row's terms of delta are or, in the second eight, those of lse. A step contracts over sixteen
  // columns, which are a row's eight twice: so the factors are halves. A thread writes a row.
  __device__ void write_factors() const {
    constexpr uint32_t kHalf = 0x3f00, kHalves = kHalf << 16 | kHalf;
    auto* rows = reinterpret_cast<uint4*>(c.smem + c.kSmem.factors);
    if (threadIdx.x >= num_statistic_products(T) * kCoreRows) return;
    rows[threadIdx.x] =
        threadIdx.x < kCoreRows ? uint4{0, kHalf << 16, kHalves, 0} : uint4{kHalves, kHalf, 0, 0};
    ptx::fence_proxy_async_shared();
  }

  // d becomes the statistic of each of its columns, whatever it was.
  template <Statistic kOf>
  __device__ void start(float (&d)[T.q_rows / 2], int stage) const {
    if constexpr (T.q_rows > kQueryRows) {
      // Zero because of a number that ptxas does not know, so that dP takes the registers of S as
      // they lie: there are no 64 others.
      Step::template run<1>(d, factors<kOf>(), terms(stage), c.params.heads_q < 0);
    } else {
      Step::template start<1>(d, factors<kOf>(), terms(stage));
    }
  }

 private:
  using Step = ptx::WgmmaStep<T.q_rows, Element::kBF16>;

  // Eight rows lie side by side, and the next eight columns in the place of the first: unswizzled,
  // `group_bytes` from eight rows to the next (PTX ISA, "Matrix Descriptor Format").
  __device__ uint64_t descriptor(int at, int group_bytes) const {
    const uint64_t stride = group_bytes >> 4;
    return stride << 32 | (c.smem_address(at).value & 0x3ffff) >> 4;
  }
  template <Statistic kOf>
  __device__ uint64_t factors() const {
    return descriptor(c.kSmem.factors + (kOf == Statistic::kDelta ? 0 : kCoreMatrixBytes), 0);
  }
  __device__ uint64_t terms(int stage) const {
    return descriptor(c.kSmem.stats + stage * stage_statistics_bytes(T), kCoreMatrixBytes);
  }

  const Context<T>& c;
};

}  // namespace fa4::sm90::bwd
