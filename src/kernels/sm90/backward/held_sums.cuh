// dk and dv in the accumulators of a math warp, as parts of a group hand them to one another.
#pragma once

#include "kernels/backward/part_sums.cuh"
#include "kernels/sm90/backward/context.cuh"

namespace fa4::sm90::bwd {

// Of a work that has both, or one of them.
template <BwdTraits T, Part kPart>
struct HeldSums {
  static constexpr bool kHasDk = kPart != Part::kDv, kHasDv = kPart != Part::kDkAndDq;
  static constexpr int kDkCount = kHasDk ? T.head_dim / 2 : 1;
  static constexpr int kDvCount = kHasDv ? T.head_dim_v / 2 : 1;
  // Of a block's, those of a warp: 16 rows, a thread's accumulators 32 times.
  static constexpr int kDkFloats = 16 * T.head_dim, kDvFloats = 16 * T.head_dim_v;
  static constexpr int kMathWarps = 4 * kMathWarpgroups;

  float (&dk)[kDkCount];
  float (&dv)[kDvCount];
  int warp;  // of the math warps

  // The works for dv alone have counts of their own.
  __device__ int unit() const { return kPart == Part::kDv ? kMathWarps + warp : warp; }

  __device__ void write(float* sums) const {
    if constexpr (kHasDk) write_sums(dk, place_of_dk(sums));
    if constexpr (kHasDv) write_sums(dv, place_of_dv(sums));
  }
  __device__ void add_to(float* sums) const {
    if constexpr (kHasDk) add_to_sums(dk, place_of_dk(sums));
    if constexpr (kHasDv) add_to_sums(dv, place_of_dv(sums));
  }
  __device__ void add(float* sums) const {
    if constexpr (kHasDk) add_sums<at_once(kDkCount)>(dk, place_of_dk(sums));
    if constexpr (kHasDv) add_sums<at_once(kDvCount)>(dv, place_of_dv(sums));
  }

 private:
  // As many as registers are left for.
  static constexpr int at_once(int count) { return count % 32 == 0 && !T.split ? 8 : 4; }

  __device__ float* place_of_dk(float* sums) const { return sums + warp * kDkFloats; }
  __device__ float* place_of_dv(float* sums) const {
    return sums + kMathWarps * kDkFloats + warp * kDvFloats;
  }
};

}  // namespace fa4::sm90::bwd
