// Shape and parameter of the kernel that measures the tensor cores' ceiling. Host and device.
#pragma once

#include "kernels/base/limits.h"

namespace fa4 {

struct PeakParams {
  int iterations;
  float* never_written;
};

namespace sm90 {

inline constexpr int kPeakThreads = 2 * kWarpgroupThreads;
inline constexpr int kPeakSlabs = 4;
inline constexpr int kPeakOperandBytes = kPeakSlabs * (2 * 64 + 256) * 128;
inline constexpr int kPeakSmemBytes = kPeakOperandBytes + 1024;
// Of one CTA and iteration: 2 warpgroups x 4 steps a slab of m64n256k16.
inline constexpr double kPeakFlops = 2.0 * 4 * kPeakSlabs * (2.0 * 64 * 256 * 16);

}  // namespace sm90
}  // namespace fa4
