// dk and dv in the accumulators of a math thread, and how subgroups hand them to one
// another.
#pragma once

#include "kernels/backward/subgroup_sums.cuh"
#include "kernels/sm90/backward/traits.h"

namespace fa4::sm90::bwd {

// Where works are split they lie in the same registers, so that what comes behind a work is code
// for both kinds.
template <BwdTraits T>
struct HeldSums {
  static constexpr int kDkCount = T.head_dim / 2, kDvCount = T.head_dim_v / 2;
  static constexpr int kCount = T.split ? kDkCount : kDkCount + kDvCount;
  static_assert(!T.split || kDvCount <= kDkCount);

  float x[kCount];

  __device__ auto& dk() { return *reinterpret_cast<float(*)[kDkCount]>(x); }
  __device__ auto& dv() {
    return *reinterpret_cast<float(*)[kDvCount]>(x + (T.split ? 0 : kDkCount));
  }
};

// The sums that a warp holds, 16 rows of a block, as SubgroupSums takes them.
template <BwdTraits T>
struct WarpSums {
  using Held = HeldSums<T>;
  static constexpr int kMathWarps = 4 * kMathWarpgroups;
  // How many sums works of every kind have.
  static constexpr int kCommon = T.split ? Held::kDvCount : Held::kCount;

  Held& held;
  int warp;    // of the math warps
  bool of_dv;  // of a work for dv alone

  // The works for dv alone have counts of their own.
  __device__ int unit() const { return of_dv ? kMathWarps + warp : warp; }

  __device__ void write(float* sums) const {
    visit(sums, [](auto& x, float* to) { write_sums(x, to); });
  }
  __device__ void add_to(float* sums) const {
    visit(sums, [](auto& x, float* to) { add_to_sums(x, to); });
  }
  __device__ void add(float* sums) const {
    // As many as registers are left for.
    constexpr int kAtOnce = Held::kCount % 32 == 0 && !T.split ? 8 : 4;
    visit(sums, [](auto& x, float* from) { add_sums<kAtOnce>(x, from); });
  }

 private:
  template <class Visit>
  __device__ void visit(float* sums, Visit visit) const {
    float* place =
        sums + 32 * (of_dv ? kMathWarps * Held::kCount + warp * kCommon : warp * Held::kCount);
    visit(*reinterpret_cast<float(*)[kCommon]>(held.x), place);
    if constexpr (Held::kCount > kCommon) {
      constexpr int kOthers = Held::kCount - kCommon;
      if (of_dv) return;
      visit(*reinterpret_cast<float(*)[kOthers]>(held.x + kCommon), place + 32 * kCommon);
    }
  }
};

}  // namespace fa4::sm90::bwd
