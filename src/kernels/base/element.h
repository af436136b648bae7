// The types of 16 bits that GPU kernels multiply, and those of what they only read. Host and
// device.
#pragma once

namespace fa4 {

enum class Element : int { kBF16 = 0, kF16 = 1 };
inline constexpr int kElementBytes = 2;

// The type of a tensor of floats that is known only when a kernel runs: no variant depends on it.
enum class FloatType : int { kF32 = 0, kF16 = 1, kBF16 = 2 };

}  // namespace fa4
