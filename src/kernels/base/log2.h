// Between logarithms of base e and of base 2, whose exponential GPUs have. Host and device.
#pragma once

namespace fa4 {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

}  // namespace fa4
