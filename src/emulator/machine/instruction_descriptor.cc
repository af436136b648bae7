#include "emulator/machine/instruction_descriptor.h"

#include <fmt/format.h>

#include "emulator/observe/finding.h"

namespace ptxemu {

namespace {

struct Reader {
  uint32_t bits;
  MmaKind kind;
  int cta_group;

  uint32_t field(int first, int count) const { return (bits >> first) & ((1u << count) - 1); }

  [[noreturn]] void refuse(std::string_view name, uint32_t value, std::string_view accepted) const {
    throw Trap{"instruction-descriptor",
               fmt::format("idesc {:#010x} of .{}.cta_group::{}: {} is {}; accepted: {}", bits,
                           name_of(kind), cta_group, name, value, accepted)};
  }

  void need_zero(int first, int count, std::string_view name) const {
    const uint32_t value = field(first, count);
    if (value != 0) refuse(name, value, "0");
  }

  ElementType type(int first, std::string_view name) const {
    const uint32_t value = field(first, 3);
    switch (kind) {
      case MmaKind::kF16:
        if (value > 1) refuse(name, value, "0 (f16), 1 (bf16)");
        return value == 0 ? ElementType::kF16 : ElementType::kBF16;
      case MmaKind::kTF32:
        if (value != 2) refuse(name, value, "2 (tf32)");
        return ElementType::kTF32;
      case MmaKind::kI8:
        if (value > 1) refuse(name, value, "0 (u8), 1 (s8)");
        return value == 0 ? ElementType::kU8 : ElementType::kS8;
      case MmaKind::kF8F6F4: break;
    }
    switch (value) {
      case 0: return ElementType::kE4M3;
      case 1: return ElementType::kE5M2;
      case 3: return ElementType::kE2M3;
      case 4: return ElementType::kE3M2;
      case 5: return ElementType::kE2M1;
      default: refuse(name, value, "0 (e4m3), 1 (e5m2), 3 (e2m3), 4 (e3m2), 5 (e2m1)");
    }
  }

  Accumulator accumulator(ElementType a, ElementType b) const {
    const uint32_t value = field(4, 2);
    if (kind == MmaKind::kI8) {
      if (value != 2) refuse("dtype (bits 4-5)", value, "2 (s32)");
      return Accumulator::kS32;
    }
    const bool half_too =
        kind == MmaKind::kF8F6F4 || (a == ElementType::kF16 && b == ElementType::kF16);
    if (value > 1 || (value == 0 && !half_too)) {
      refuse("dtype (bits 4-5)", value, half_too ? "0 (f16), 1 (f32)" : "1 (f32)");
    }
    return value == 0 ? Accumulator::kF16 : Accumulator::kF32;
  }

  void check_shape(const InstructionDescriptor& d) const {
    const bool pair = cta_group == 2;
    const int least = pair ? 128 : 64, most = pair ? 256 : 128;
    if (d.m != least && d.m != most) {
      refuse("M (bits 24-28, times 16)", static_cast<uint32_t>(d.m), pair ? "128, 256" : "64, 128");
    }
    // Transposed 8-bit B: Table 52.
    const bool wide_b = d.transpose_b && bits_of(d.b) == 8;
    int step = pair ? 16 : 8;
    if (wide_b) step *= 2;
    const bool integer = kind == MmaKind::kI8;
    if (integer) step = pair ? 32 : (d.n > 32 || wide_b ? 16 : 8);
    if (d.n < step || d.n > 256 || d.n % step != 0) {
      refuse("N (bits 17-22, times 8)", static_cast<uint32_t>(d.n),
             fmt::format("{} to 256 in steps of {}", step, step));
    }
  }
};

}  // namespace

std::string_view name_of(MmaKind kind) {
  switch (kind) {
    case MmaKind::kF16: return "kind::f16";
    case MmaKind::kTF32: return "kind::tf32";
    case MmaKind::kF8F6F4: return "kind::f8f6f4";
    case MmaKind::kI8: return "kind::i8";
  }
  return "";
}

InstructionDescriptor decode_instruction_descriptor(uint32_t bits, MmaKind kind, int cta_group) {
  const Reader reader{bits, kind, cta_group};
  reader.need_zero(0, 2, "sparsity selector (bits 0-1)");
  reader.need_zero(2, 1, "sparsity (bit 2; a dense instruction)");
  if (kind != MmaKind::kI8) reader.need_zero(3, 1, "saturate (bit 3; integers only)");
  reader.need_zero(6, 1, "bit 6");
  reader.need_zero(23, 1, "bit 23");
  reader.need_zero(29, 1, "bit 29");
  reader.need_zero(30, 2, "maximum shift (bits 30-31; of .ws only)");
  InstructionDescriptor d;
  d.a = reader.type(7, "atype (bits 7-9)");
  d.b = reader.type(10, "btype (bits 10-12)");
  d.d = reader.accumulator(d.a, d.b);
  d.saturate = reader.field(3, 1) != 0;
  if (kind == MmaKind::kI8) reader.need_zero(13, 2, "negate (bits 13-14)");
  d.negate_a = reader.field(13, 1) != 0;
  d.negate_b = reader.field(14, 1) != 0;
  d.transpose_a = reader.field(15, 1) != 0;
  d.transpose_b = reader.field(16, 1) != 0;
  d.n = static_cast<int>(reader.field(17, 6)) * 8;
  d.m = static_cast<int>(reader.field(24, 5)) * 16;
  d.k = 32 / container_bytes(d.a);
  reader.check_shape(d);
  return d;
}

}  // namespace ptxemu
