#include "emulator/machine/mma_formats.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace ptxemu {

namespace {

// A format of one sign bit, then exponent, then mantissa; without infinities and NaN.
float small_float(uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  const uint32_t exponent = (code >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const bool negative = ((code >> (mantissa_bits + exponent_bits)) & 1) != 0;
  const float fraction = std::ldexp(static_cast<float>(mantissa), -mantissa_bits);
  const float magnitude = exponent == 0
                              ? std::ldexp(fraction, 1 - bias)
                              : std::ldexp(1 + fraction, static_cast<int>(exponent) - bias);
  return negative ? -magnitude : magnitude;
}

float value_of(ElementType type, uint32_t code) {
  switch (type) {
    case ElementType::kE4M3:
      if ((code & 0x7F) == 0x7F) return std::numeric_limits<float>::quiet_NaN();
      return small_float(code, 4, 3, 7);
    case ElementType::kE5M2:
      if ((code & 0x7C) == 0x7C) {
        if ((code & 3) != 0) return std::numeric_limits<float>::quiet_NaN();
        const float infinity = std::numeric_limits<float>::infinity();
        return (code & 0x80) != 0 ? -infinity : infinity;
      }
      return small_float(code, 5, 2, 15);
    case ElementType::kE2M3: return small_float(code, 2, 3, 1);
    case ElementType::kE3M2: return small_float(code, 3, 2, 3);
    case ElementType::kE2M1: return small_float(code, 2, 1, 1);
    case ElementType::kS8: return static_cast<float>(static_cast<int8_t>(code));
    default: return static_cast<float>(code);
  }
}

using Table = std::array<float, 256>;

Table make_table(ElementType type) {
  Table table;
  for (uint32_t code = 0; code < 256; ++code) table[code] = value_of(type, code);
  return table;
}

}  // namespace

std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::kF16: return "f16";
    case ElementType::kBF16: return "bf16";
    case ElementType::kTF32: return "tf32";
    case ElementType::kE4M3: return "e4m3";
    case ElementType::kE5M2: return "e5m2";
    case ElementType::kE2M3: return "e2m3";
    case ElementType::kE3M2: return "e3m2";
    case ElementType::kE2M1: return "e2m1";
    case ElementType::kS8: return "s8";
    case ElementType::kU8: return "u8";
  }
  return "";
}

int bits_of(ElementType type) {
  switch (type) {
    case ElementType::kTF32: return 32;
    case ElementType::kF16:
    case ElementType::kBF16: return 16;
    case ElementType::kE2M3:
    case ElementType::kE3M2: return 6;
    case ElementType::kE2M1: return 4;
    default: return 8;
  }
}

int smallest_exponent(ElementType type) {
  switch (type) {
    case ElementType::kF16:
    case ElementType::kE5M2: return -14;
    case ElementType::kE4M3: return -6;
    case ElementType::kE2M3:
    case ElementType::kE2M1: return 0;
    case ElementType::kE3M2: return -2;
    default: return -126;
  }
}

const float* value_table(ElementType type) {
  static const std::array<Table, 7> tables = [] {
    std::array<Table, 7> all;
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = make_table(static_cast<ElementType>(static_cast<size_t>(ElementType::kE4M3) + i));
    }
    return all;
  }();
  return tables[static_cast<size_t>(type) - static_cast<size_t>(ElementType::kE4M3)].data();
}

float float_of_half(uint16_t half) {
  uint32_t bits = (half & 0x7FFFu) << 13;
  if ((half & 0x7C00) == 0x7C00) {
    bits |= 0x7F800000;
  } else {
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) * 0x1p112f);
  }
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(half) & 0x8000u) << 16);
}

uint16_t half_of_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return 0x7FFF;
  if (magnitude >= 0x477FF000) return sign | 0x7C00;  // from 65520 on
  if (magnitude < 0x38800000) {                       // subnormal: in units of 2^-24
    const float units = std::bit_cast<float>(magnitude) * 0x1p24f;
    return sign | static_cast<uint16_t>(std::lrintf(units));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000 + 0xFFF + odd) >> 13);
}

}  // namespace ptxemu
