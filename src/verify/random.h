// Random numbers that are the same on every machine and compiler.
#pragma once

#include <cstdint>

namespace fa4::internal {

class Random {
 public:
  // Neighbouring seeds give unrelated numbers.
  explicit Random(uint64_t seed) : state_(seed) { state_ = bits(); }

  uint64_t bits() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform in [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  // Nearly normal: four uniforms, variance 1, within +-3.5.
  float normal() {
    const uint64_t b = bits();
    const int64_t sum =
        static_cast<int64_t>((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48)) -
        2 * 0xffff;
    return static_cast<float>(sum) * (1.7320508f / 65536.0f);
  }

 private:
  uint64_t state_;
};

}  // namespace fa4::internal
