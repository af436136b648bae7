#include "core/dtype.h"

#include <array>

namespace fa4::internal {

std::optional<DType> parse_dtype(std::string_view text) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (text == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13) | quiet);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the payload's top bits, made quiet
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

namespace {

constexpr std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const uint32_t sign = (bits & 0x80u) << 24, exponent = bits >> 3 & 0xfu, mantissa = bits & 7u;
    const bool is_nan = (bits & 0x7fu) == 0x7fu;
    // Zero and subnormals are multiples of 2^-9.
    const float magnitude = exponent == 0
                                ? static_cast<float>(mantissa) * 0x1p-9f
                                : std::bit_cast<float>((exponent + 120) << 23 | mantissa << 20);
    values[bits] =
        std::bit_cast<float>(sign | (is_nan ? 0x7fc00000u : std::bit_cast<uint32_t>(magnitude)));
  }
  return values;
}

constexpr std::array<float, 256> kE4M3Values = e4m3_values();

}  // namespace

float e4m3_to_float(uint8_t bits) { return kE4M3Values[bits]; }

uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // >= 448
  if (magnitude < 0x3c800000u) {  // below 2^-6: adding 2^14 rounds to a multiple of 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

float load_as_float(DType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DType::kF32: return static_cast<const float*>(data)[index];
    case DType::kF16: return f16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kBF16: return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kE4M3: return e4m3_to_float(static_cast<const uint8_t*>(data)[index]);
  }
  return 0.0f;
}

void store_from_float(DType dtype, void* data, int64_t index, float value) {
  switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[index] = value; return;
    case DType::kF16: static_cast<uint16_t*>(data)[index] = float_to_f16(value); return;
    case DType::kBF16: static_cast<uint16_t*>(data)[index] = float_to_bf16(value); return;
    case DType::kE4M3: static_cast<uint8_t*>(data)[index] = float_to_e4m3(value); return;
  }
}

}  // namespace fa4::internal
