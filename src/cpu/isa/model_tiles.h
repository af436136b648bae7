// A scalar model of AmxTiles: the same interface, on any machine. Tests of the AMX path run on it.
#pragma once

#include <cstdint>
#include <cstring>

namespace fa4::internal {
namespace {

class ModelTiles {
 public:
  void zero_sums() { std::memset(sums_, 0, sizeof sums_); }

  void load_sums(const float* c, int64_t row_bytes) {
    for (int m = 0; m < 32; ++m) std::memcpy(sums_[m], c + m * row_bytes / 4, sizeof sums_[m]);
  }
  void store_sums(float* c, int64_t row_bytes) {
    for (int m = 0; m < 32; ++m) std::memcpy(c + m * row_bytes / 4, sums_[m], sizeof sums_[m]);
  }

  // TDPBF16PS: for every pair of bf16, first the even product is added, then the odd one.
  template <class Between>
  void multiply(const uint32_t* a, const uint32_t* b, int64_t panel_stride,
                const Between& between) {
    for (int m = 0; m < 32; ++m) {
      const uint32_t* left = a + m * 16;
      for (int k = 0; k < 16; ++k) {
        for (int n = 0; n < 32; ++n) {
          const uint32_t right = b[n / 16 * panel_stride + k * 16 + n % 16];
          sums_[m][n] += even(left[k]) * even(right);
          sums_[m][n] += odd(left[k]) * odd(right);
        }
      }
    }
    for (int product = 0; product < 4; ++product) between();
  }
  template <class Between>
  void multiply_passing_a(const uint32_t* a, const uint32_t* b, int64_t panel_stride,
                          const Between& between) {
    multiply(a, b, panel_stride, between);
  }

 private:
  static float even(uint32_t pair) { return as_float(pair << 16); }
  static float odd(uint32_t pair) { return as_float(pair & 0xffff0000u); }
  static float as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  float sums_[32][32];
};

}  // namespace
}  // namespace fa4::internal
