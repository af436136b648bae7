// The types of 16 bits that the GPU kernels multiply. Host and device.
#pragma once

namespace fa4 {

enum class Element : int { kBF16 = 0, kF16 = 1 };
inline constexpr int kElementBytes = 2;

}  // namespace fa4
