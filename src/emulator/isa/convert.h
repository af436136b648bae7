// What the files of cvt share.
#pragma once

#include "emulator/isa/float_decode.h"
#include "emulator/isa/lanes.h"
#include "emulator/isa/small_float.h"

namespace ptxemu {

struct ConvertForm {
  Type from = Type::kNone, to = Type::kNone;
  SmallRound rounding = SmallRound::kNearest;
  bool has_rounding = false;
  bool integral = false;  // .rni, .rzi, .rmi, .rpi
  bool ftz = false, sat = false, finite = false, relu = false;
  int source_bits = 0, dest_bits = 0;  // of the registers
};

// One value of form.from, in the low bits of raw, as form.to, extended to 64 bits.
uint64_t convert_value(const ConvertForm& form, uint64_t raw);

// A NaN of .f64 in a format of `mantissa` bits: the upper bits of its payload, quiet. What an H200
// gives; the bits above the mantissa are those of a format of 32 (23 bits) or 16 bits.
PTXEMU_INLINE uint32_t nan_of_double(uint64_t bits, int mantissa) {
  const int width = mantissa == 23 ? 32 : 16;
  const auto payload = static_cast<uint32_t>((bits & 0xfffffffffffff) >> (52 - mantissa));
  const uint32_t exponent = ((1u << (width - 1 - mantissa)) - 1) << mantissa;
  const auto sign = static_cast<uint32_t>(bits >> 63) << (width - 1);
  return sign | exponent | payload | 1u << (mantissa - 1);
}

// A lane of a register of 16, 32 or 64 bits.
inline uint64_t load_lane(const Exec& exec, Slot slot, int bits, int lane) {
  if (bits == 64) return exec.lanes<uint64_t>(slot)[lane];
  return bits == 32 ? exec.lanes<uint32_t>(slot)[lane] : exec.lanes<uint16_t>(slot)[lane];
}
inline void store_lane(const Exec& exec, Slot slot, int bits, int lane, uint64_t value) {
  if (bits == 64) {
    exec.lanes<uint64_t>(slot)[lane] = value;
  } else if (bits == 32) {
    exec.lanes<uint32_t>(slot)[lane] = static_cast<uint32_t>(value);
  } else {
    exec.lanes<uint16_t>(slot)[lane] = static_cast<uint16_t>(value);
  }
}

// Pairs of values, .tf32, .ue8m0.
bool is_packed_conversion(const ConvertForm& form);
void decode_packed(Decoder& decoder, Insn& insn, ConvertForm form);
void decode_cvt_pack(Decoder& decoder, Insn& insn);

}  // namespace ptxemu
