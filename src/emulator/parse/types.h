// Scalar types and state spaces of PTX ("Fundamental Types", "Alternate Floating-Point Data
// Formats", "State Spaces"; PTX ISA 5.1, 5.2).
#pragma once

#include <cstdint>
#include <string_view>

namespace ptxemu {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBF16,
  kBF16x2,
  kTF32,
  kF32,
  kF32x2,
  kF64,
  kU8x4,
  kS8x4,
  kU16x2,
  kS16x2,
  kE4M3,
  kE5M2,
  kE4M3x2,
  kE5M2x2,
  kE4M3x4,
  kE5M2x4,
  kE2M1x2,
  kE2M3x2,
  kE3M2x2,
  kUE8M0x2,
  kUE8M0,
  kE2M1,
  kE2M3,
  kE3M2,
};

// Bits of one value of a register of this type; kPred has 1.
int bits_of(Type type);
inline int bytes_of(Type type) { return (bits_of(type) + 7) / 8; }
bool is_signed(Type type);
bool is_integer(Type type);  // signed or unsigned, not .b
bool is_float(Type type);    // every floating-point format, packed ones too
// "u32" (no dot) to its type; kNone when it names none.
Type type_of(std::string_view name);
std::string_view name_of(Type type);

enum class Space : uint8_t {
  kGeneric,
  kReg,
  kConst,
  kGlobal,
  kLocal,
  kParam,          // of a kernel, or of a function call
  kShared,         // .shared and .shared::cta
  kSharedCluster,  // .shared::cluster
};
std::string_view name_of(Space space);

}  // namespace ptxemu
