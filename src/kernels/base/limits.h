// What Hopper and Blackwell have in common. Host and device.
#pragma once

namespace fa4 {

inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kMaxSmemBytes = 232448;  // 227 KiB, opt-in, of one CTA

}  // namespace fa4
