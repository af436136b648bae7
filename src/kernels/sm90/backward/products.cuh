// The products of a math warpgroup, each issued as a group of its own, and what of a step its
// registers hold.
#pragma once

#include "kernels/ptx/wgmma_backward.cuh"
#include "kernels/sm90/backward/statistics.cuh"
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

  // The steps of 16 queries that a half consists of: [begin, end).
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

template <BwdTraits T, WorkKind kKind>
struct Products {
  using Shape = StepShape<T>;
  using Scores = typename Shape::Scores;
  using Operand = typename Shape::Operand;

  // K as A in registers: 64 keys, in steps of 16 columns; none where they are not held.
  static constexpr int kKeySteps = holds_keys(T) ? T.head_dim / Shape::kMmaK : 0;
  using Keys = uint32_t[holds_keys(T) ? kKeySteps : 1][4];

  const Context<T>& c;
  int warpgroup;
  int k;  // where the work's K lies

  // Loads K into registers, for all products of a work.
  __device__ void load_keys(Keys& rK) const {
    constexpr int kSlab = slab_columns(T.head_dim), kRowBytes = kSlab * kElementBytes;
    constexpr int kPieceColumns = 8, kPieceBytes = kPieceColumns * kElementBytes;
    const int lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroupThreads / 32;
#pragma unroll
    for (int i = 0; i < 4 * kKeySteps; ++i) {
      const int row = kWarpgroupKeys * warpgroup + 16 * warp + lane / 4 + 8 * (i % 2);
      const int column = Shape::kMmaK * (i / 4) + kPieceColumns * (i % 4 / 2);
      const int piece = column % kSlab / kPieceColumns ^ slab_swizzle<kSlab>(row);
      rK[i / 4][i % 4] =
          *reinterpret_cast<const uint32_t*>(c.smem + k + column / kSlab * (kKeys * kRowBytes) +
                                             row * kRowBytes + piece * kPieceBytes + lane % 4 * 4);
    }
  }

  __device__ void issue_scores(Scores& rS, const Keys& rK, const Rings<T, kKind>& of) const {
    const int stage = of.q().stage(), q = c.q_place(stage);
    if constexpr (holds_keys(T)) {
      issue_held(rS, rK, q, stage);
    } else {
      issue_product<T.head_dim, Statistic::kLse, multiplies_lse(T)>(rS, k, q, stage);
    }
  }
  __device__ void issue_dp(Scores& rDP, const Rings<T, kKind>& of) const {
    issue_product<T.head_dim_v, Statistic::kDelta, true>(rDP, c.kSmem.v, dout_place(of),
                                                         of.q().stage());
  }

  template <Half kHalf>
  __device__ void issue_dv(float (&rDV)[T.head_dim_v / 2], const Operand& rP,
                           const Rings<T, kKind>& of) const {
    issue_sum<T.head_dim_v, kHalf>(rDV, rP, dout_place(of));
  }
  template <Half kHalf>
  __device__ void issue_dk(float (&rDK)[T.head_dim / 2], const Operand& rDS,
                           const Rings<T, kKind>& of) const {
    issue_sum<T.head_dim, kHalf>(rDK, rDS, c.q_place(of.q().stage()));
  }

 private:
  __device__ int dout_place(const Rings<T, kKind>& of) const {
    return c.dout_place(of.dout().stage());
  }

  // Sᵀ = K Qᵀ and dPᵀ = V dOᵀ: 64 keys x q_rows queries. Of a slab, A has kKeys rows and B q_rows.
  // They begin as a statistic of a stage, or as zeros.
  template <int kHeadDim, Statistic kStatistic, bool kHasStatistic>
  __device__ void issue_product(Scores& d, int a, int b, int stage) const {
    using Descriptor = WgmmaDescriptor<slab_columns(kHeadDim)>;
    using Wgmma = ptx::WgmmaStep<T.q_rows, T.element>;
    constexpr int kRowBytes = slab_columns(kHeadDim) * kElementBytes;
    constexpr int kAtOnce = slab_columns(kHeadDim) / Shape::kMmaK;
    const uint32_t a_lo =
        Descriptor::k_major(c.smem_address(a + warpgroup * kWarpgroupKeys * kRowBytes));
    const uint32_t b_lo = Descriptor::k_major(c.smem_address(b));
    ptx::wgmma_fence();
    if constexpr (kHasStatistic) {
      StatisticProduct<T>(c).template start<kStatistic>(d, stage);
    }
#pragma unroll
    for (int slab = 0; slab < num_slabs(kHeadDim); ++slab) {
      const uint64_t a_slab = Descriptor::descriptor_at(a_lo, slab * kKeys * kRowBytes);
      const uint64_t b_slab = Descriptor::descriptor_at(b_lo, slab * T.q_rows * kRowBytes);
      if (slab == 0 && !kHasStatistic) {
        Wgmma::template start<kAtOnce>(d, a_slab, b_slab);
      } else {
        Wgmma::template run<kAtOnce>(d, a_slab, b_slab);
      }
    }
    ptx::wgmma_commit_group();
  }

  // Sᵀ of K in registers.
  __device__ void issue_held(Scores& d, const Keys& a, int b, int stage) const {
    using Descriptor = WgmmaDescriptor<slab_columns(T.head_dim)>;
    using Wgmma = ptx::WgmmaRs<T.q_rows, T.element, ptx::Major::kK>;
    constexpr int kRowBytes = slab_columns(T.head_dim) * kElementBytes;
    constexpr int kStepBytes = Shape::kMmaK * kElementBytes;
    const uint32_t b_lo = Descriptor::k_major(c.smem_address(b));
    ptx::wgmma_fence();
    StatisticProduct<T>(c).template start<Statistic::kLse>(d, stage);
#pragma unroll
    for (int i = 0; i < kKeySteps; i += 2) {
      const int at = i * kStepBytes, slab = at / kRowBytes;
      Wgmma::template run<2, kStepBytes>(
          d, a + i, Descriptor::descriptor_at(b_lo, slab * T.q_rows * kRowBytes + at % kRowBytes));
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
      for (int i = Shape::begin(kHalf); i < Shape::end(kHalf); i += 4) {
        Wgmma::template run<4, kStepBytes>(part, a + i,
                                           Descriptor::descriptor_at(b_lo, slabs + i * kStepBytes));
      }
    }
    ptx::wgmma_commit_group();
  }
};

}  // namespace fa4::sm90::bwd
