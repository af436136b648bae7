// Element types and their conversions to and from float.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fa4::internal {

// The values are those of fa4_dtype in fa4.h. kE4M3 is a type of stored keys and values alone.
enum class DType : int32_t { kF32 = 1, kF16 = 2, kBF16 = 3, kE4M3 = 4 };

constexpr int size_of(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kE4M3 ? 1 : 2;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kE4M3: return "e4m3";
  }
  return "?";
}

// "f32", "f16" or "bf16", what attention computes in; nothing for any other text.
std::optional<DType> parse_dtype(std::string_view text);

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to nearest even; every NaN stays a (quiet) NaN. Without a branch, so that the compiler
// works on many at once.
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>(value != value ? bits >> 16 | 0x40u : rounded);
}

// IEEE binary16, subnormals included. Rounds to nearest even, overflows to infinity.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);

// OCP e4m3fn: 448 is the largest, there is no infinity, 0x7f and 0xff are NaN. Rounds to nearest
// even; what lies beyond the largest becomes it.
float e4m3_to_float(uint8_t bits);
uint8_t float_to_e4m3(float value);

// Element `index` of `data` as float, and the other way.
float load_as_float(DType dtype, const void* data, int64_t index);
void store_from_float(DType dtype, void* data, int64_t index, float value);

}  // namespace fa4::internal
