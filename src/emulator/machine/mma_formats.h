// Number formats of tensor-core multiplicands, and the conversions that tensor cores make.
#pragma once

#include <cstdint>
#include <string_view>

namespace ptxemu {

enum class ElementType : uint8_t {
  kF16,
  kBF16,
  kTF32,
  kE4M3,
  kE5M2,
  kE2M3,
  kE3M2,
  kE2M1,
  kS8,
  kU8,
};
std::string_view name_of(ElementType type);
// Bits of one value as a matrix: 4, 6, 8, 16 or 32.
int bits_of(ElementType type);
// Bytes of the container in which matrices hold it: 1, 2 or 4.
inline int container_bytes(ElementType type) {
  return type == ElementType::kTF32                                ? 4
         : type == ElementType::kF16 || type == ElementType::kBF16 ? 2
                                                                   : 1;
}
// Exponent of the smallest normal number; subnormal ones count with it.
int smallest_exponent(ElementType type);

// The value of an 8-, 6- or 4-bit format by its code (in the low bits of a byte), or of an integer.
// Exact.
const float* value_table(ElementType type);

float float_of_half(uint16_t half);
// Rounds to nearest, ties to even; NaN becomes 0x7FFF, as tensor cores write it.
uint16_t half_of_float(float value);

}  // namespace ptxemu
