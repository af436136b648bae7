// The products of a math warpgroup, each issued as a group of its own, and what of a step its
// registers hold.
#pragma once

#include "kernels/ptx/wgmma_backward.cuh"
#include "kernels/sm90/backward/context.cuh"
#include "kernels/tile/smem_descriptor.cuh"

namespace fa4::sm90::bwd {

// Which of a step's queries.
enum Half { kFirst, kSecond, kBoth };

template <BwdTraits T>
struct StepShape {
  static constexpr int kMmaK = 16;
  static constexpr int kSteps = T.q_rows / kMmaK;  // of dV and dK
  // Whether registers hold a step's S or dP, not both.
  static constexpr bool kInHalves = T.q_rows > kQueryRows;
  // 64 keys x q_rows queries: as accumulators, and in 16 bits as A in registers.
  using Scores = float[T.q_rows / 2];
  using Operand = uint32_t[kSteps][4];

  // Of a half, in steps of 16 queries.
  static constexpr int begin(Half of) { return of == kSecond ? kSteps / 2 : 0; }
  static constexpr int end(Half of) { return of == kFirst ? kSteps / 2 : kSteps; }
  template <Half kHalf>
  __device__ static auto& part(Operand& x) {
    return *reinterpret_cast<uint32_t(*)[end(kHalf) - begin(kHalf)][4]>(x + begin(kHalf));
  }
  template <Half kHalf>
  __device__ static const auto& part(const Operand& x) {
    return *reinterpret_cast<const uint32_t(*)[end(kHalf) - begin(kHalf)][4]>(x + begin(kHalf));
  }
};

template <BwdTraits T>
struct Products {
  using Shape = StepShape<T>;
  using Scores = typename Shape::Scores;
  using Operand = typename Shape::Operand;

  const Context<T>& c;
  int warpgroup;
  int k;  // where the work's K lies

  __device__ void issue_scores(Scores& rS, int stage) const {
    issue_product<QkDescriptor, T.head_dim>(rS, k, c.kSmem.q + stage * q_bytes(T));
  }
  __device__ void issue_dp(Scores& rDP, int stage) const {
    issue_product<VDescriptor, T.head_dim_v>(rDP, c.kSmem.v, c.kSmem.dout + stage * dout_bytes(T));
  }

  template <Half kHalf>
  __device__ void issue_dv(float (&rDV)[T.head_dim_v / 2], const Operand& rP, int stage) const {
    issue_sum<T.head_dim_v, kHalf>(rDV, rP, c.kSmem.dout + stage * dout_bytes(T));
  }
  template <Half kHalf>
  __device__ void issue_dk(float (&rDK)[T.head_dim / 2], const Operand& rDS, int stage) const {
    issue_sum<T.head_dim, kHalf>(rDK, rDS, c.kSmem.q + stage * q_bytes(T));
  }

 private:
  using QkDescriptor = WgmmaDescriptor<slab_columns(T.head_dim)>;
  using VDescriptor = WgmmaDescriptor<slab_columns(T.head_dim_v)>;

  // Sᵀ = K Qᵀ and dPᵀ = V dOᵀ: 64 keys x q_rows queries. Of a slab, A has kKeys rows and B q_rows.
  template <class Descriptor, int kHeadDim>
  __device__ void issue_product(Scores& d, int a, int b) const {
    constexpr int kRowBytes = slab_columns(kHeadDim) * kElementBytes;
    constexpr int kAtOnce = slab_columns(kHeadDim) / Shape::kMmaK;
    const uint32_t a_lo =
        Descriptor::k_major(c.smem_address(a + warpgroup * kWarpgroupKeys * kRowBytes));
    const uint32_t b_lo = Descriptor::k_major(c.smem_address(b));
    ptx::wgmma_fence();
#pragma unroll
    for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
      const uint64_t a_slab = Descriptor::descriptor_at(a_lo, slab * kKeys * kRowBytes);
      const uint64_t b_slab = Descriptor::descriptor_at(b_lo, slab * T.q_rows * kRowBytes);
      if constexpr (Shape::kInHalves) {
        // Begins at zero because of a number that ptxas does not know, so that dP takes the
        // registers of S as they lie: there are no 64 others.
        ptx::WgmmaSs<T.q_rows, T.element, ptx::Major::kK, ptx::Major::kK>::template run<kAtOnce>(
            d, a_slab, b_slab, slab > 0 || c.params.heads_q < 0);
      } else if (slab == 0) {
        ptx::WgmmaStep<T.q_rows, T.element>::template start<kAtOnce>(d, a_slab, b_slab);
      } else {
        ptx::WgmmaStep<T.q_rows, T.element>::template run<kAtOnce>(d, a_slab, b_slab);
      }
    }
    ptx::wgmma_commit_group();
  }

  // dV += Pᵀ dO and dK += dSᵀ Q: A in registers, B's contracted dimension runs over its rows. At
  // most 192 columns an instruction: ptxas does not place more in a kernel of 512 threads.
  template <int kColumns, Half kHalf>
  __device__ void issue_sum(float (&d)[kColumns / 2], const Operand& from, int b) const {
    using Descriptor = WgmmaDescriptor<slab_columns(kColumns)>;
    constexpr int kAtOnce = kColumns > 192 ? kColumns / 2 : kColumns;
    using Wgmma = ptx::WgmmaRs<kAtOnce, T.element>;
    constexpr int kStepBytes = Shape::kMmaK * Descriptor::kRowBytes;
    constexpr int kSlabBytes = T.q_rows * Descriptor::kRowBytes;
    const uint32_t b_lo = Descriptor::mn_major(c.smem_address(b), kSlabBytes);
    Operand a;
    ptx::copy_registers(Shape::template part<kHalf>(a), Shape::template part<kHalf>(from));
    ptx::wgmma_fence();
#pragma unroll
    for (int first = 0; first < kColumns; first += kAtOnce) {
      auto& part = *reinterpret_cast<float(*)[kAtOnce / 2]>(d + first / 2);
      const int slabs = first / slab_columns(kColumns) * kSlabBytes;
#pragma unroll
      for (int i = Shape::begin(kHalf); i < Shape::end(kHalf); i += 2) {
        Wgmma::template run<2, kStepBytes>(part, a + i,
                                           Descriptor::descriptor_at(b_lo, slabs + i * kStepBytes));
      }
    }
    ptx::wgmma_commit_group();
  }
};

}  // namespace fa4::sm90::bwd
