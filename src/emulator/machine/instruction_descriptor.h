// The instruction descriptor of tcgen05.mma ("Instruction descriptor", PTX ISA 9.7.16.4.2,
// Table 42) and the shapes that it may name ("Matrix Shape", 9.7.16.2.1, Table 39).
#pragma once

#include <cstdint>
#include <string_view>

#include "emulator/machine/mma_formats.h"

namespace ptxemu {

enum class MmaKind : uint8_t { kF16, kTF32, kF8F6F4, kI8 };
std::string_view name_of(MmaKind kind);  // "kind::f16"

enum class Accumulator : uint8_t { kF32, kF16, kS32 };

struct InstructionDescriptor {
  int m = 0, n = 0, k = 0;
  ElementType a = ElementType::kF16, b = ElementType::kF16;
  Accumulator d = Accumulator::kF32;
  bool negate_a = false, negate_b = false;
  bool transpose_a = false, transpose_b = false;  // MN-major
  bool saturate = false;                          // integers
};

// Throws Trap{"instruction-descriptor"}, which names the field, for what the tables do not allow.
// Dense, without .ws.
InstructionDescriptor decode_instruction_descriptor(uint32_t bits, MmaKind kind, int cta_group);

}  // namespace ptxemu
